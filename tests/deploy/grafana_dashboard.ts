// What deploy/grafana/dashboards/nextitem.json must be, put together from Grafana's own types: `Dashboard` leaves options,
// custom fields and queries open, so each kind of panel that we use is closed here. test_dashboard.py makes a JSON Schema
// of `CheckedDashboard` and validates against it; a kind of panel or a field that is not in these types is an error.
import { AnnotationQuery, DataQuery } from '@grafana/schema';
import * as raw from 'dashboard'; // where its types lie depends on the version: test_dashboard.py says
import * as stat from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import * as table from '@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen';
import * as timeline from '@grafana/schema/dist/esm/raw/composable/statetimeline/panelcfg/x/StateTimelinePanelCfg_types.gen';
import * as timeseries from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';

// npm's @grafana/schema has no types for Prometheus' queries: these are the fields of Grafana's own plugin.
interface PrometheusQuery extends Omit<DataQuery, 'datasource'> {
  datasource: raw.DataSourceRef;
  expr: string;
  format: 'time_series' | 'table';
  instant?: boolean;
  range?: boolean;
  legendFormat?: string;
}

interface Fields<Custom> {
  defaults: Omit<raw.FieldConfig, 'custom'> & { custom?: Custom };
  overrides: raw.FieldConfigSource['overrides'];
}

// options: what is left out is filled in by the panel's defaults when Grafana loads it.
type Kind<Type, Options, Custom> = Omit<raw.Panel, 'type' | 'options' | 'fieldConfig' | 'targets'> & {
  type: Type;
  options: Partial<Options>;
  fieldConfig: Fields<Custom>;
  targets: PrometheusQuery[];
};

type CheckedPanel =
  | Kind<'stat', stat.Options, never>
  | Kind<'table', table.Options, Partial<table.FieldConfig>>
  | Kind<'state-timeline', timeline.Options, timeline.FieldConfig>
  | Kind<'timeseries', timeseries.Options, timeseries.FieldConfig>
  | raw.RowPanel;

export type CheckedDashboard = Omit<raw.Dashboard, 'panels' | 'annotations'> & {
  panels: CheckedPanel[];
  annotations: { list: (AnnotationQuery & { expr: string; titleFormat?: string; textFormat?: string; tagKeys?: string; step?: string })[] };
};
