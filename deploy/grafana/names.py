"""What several panels name: metrics, choices of their series, and where alerts begin."""

from typing import Final

from deploy.grafana.expressions import select

HTTP: Final = "nextitem_http_request_duration_seconds"
STAGE: Final = "nextitem_stage_duration_seconds"
RECORDED: Final = f"instance_route_le:{HTTP}_bucket:rate1m"

ANSWERED: Final = ('route="/recommend"', 'method="POST"', 'code="200"')
CLIENTS: Final = 'route!~"/metrics|/health/.*"'
UP: Final = select("up")
STARTED: Final = select("nextitem_process_start_time_seconds")
FIRING: Final = 'ALERTS{alertname=~"Nextitem.+", alertstate="firing"}'

SLOW_S: Final = 0.2
FALLBACKS: Final = 0.05
SHED: Final = 0.01
STALE_S: Final = 7 * 24 * 60 * 60
LOOP_LAG_S: Final = 0.1
DESCRIPTORS: Final = 0.8
SKEW_S: Final = 5
NOT_ARCHIVED_S: Final = 3 * 60 * 60
JUDGE_SILENT_S: Final = 5 * 60
NOT_ERASED_S: Final = 24 * 60 * 60
"""The limits of deploy/prometheus/rules/alerts.yml; a test compares them."""
