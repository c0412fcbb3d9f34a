// What every view builds on: the vendored libraries, under one name each.
import { h, render } from "./vendor/preact.mjs";
import htm from "./vendor/htm.mjs";

export { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor/hooks.mjs";
export { render };

/** JSX as a template literal. What is put into it becomes text or a property, never markup. */
export const html = htm.bind(h);

/** Several class names as one; what is not true is left out. */
export const classes = (...names) => names.filter(Boolean).join(" ");
