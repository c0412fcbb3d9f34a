// What a page's reader needs, checked in the page: names, landmarks, contrast, targets. Gives the faults as sentences.
() => {
  const faults = [];
  const visible = (element) => element.checkVisibility() && element.getBoundingClientRect().width > 1;
  const describe = (element) => `${element.localName}.${element.className} ${element.textContent.trim().slice(0, 40)}`;
  const all = (selector) => [...document.querySelectorAll(selector)].filter(visible);

  for (const [selector, count] of [["main", 1], ["h1", 1], ["header:not(section > header)", 1], ["footer", 1], ["nav[aria-label]", 1]]) {
    if (all(selector).length !== count) faults.push(`${all(selector).length} of ${selector}, not ${count}`);
  }
  if (!document.documentElement.lang || !document.title) faults.push("the page has no language or title");
  const ids = [...document.querySelectorAll("[id]")].map(({ id }) => id);
  for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) faults.push(`the id ${id} is there twice`);
  for (const element of document.querySelectorAll("[aria-labelledby], [aria-controls], label[for]")) {
    for (const name of ["aria-labelledby", "aria-controls", "for"]) {
      const id = element.getAttribute(name);
      if (id && !document.getElementById(id)) faults.push(`${name} of ${describe(element)} leads nowhere`);
    }
  }

  for (const control of all("button, a[href], input, select, summary")) {
    const name = control.getAttribute("aria-label") || (control.labels?.length ? control.labels[0].textContent : control.textContent);
    if (!name.trim()) faults.push(`no name: ${describe(control)}`);
    const { height, width } = control.getBoundingClientRect();
    if ((height < 24 || width < 24) && !control.closest("p, td, footer")) faults.push(`${width}x${height}: ${describe(control)}`);
    if (control.tabIndex < 0 && !control.disabled) faults.push(`not reached by keyboard: ${describe(control)}`);
  }
  for (const region of all("section, [role=region]")) {
    const by = region.getAttribute("aria-labelledby");
    if (!by && !region.getAttribute("aria-label") && !region.matches(".panel:not(:has(h2))")) faults.push(`no name: ${describe(region)}`);
  }
  for (const region of all(".scroll")) if (region.tabIndex !== 0) faults.push(`scrolls by mouse alone: ${describe(region)}`);
  for (const head of all("th")) if (!head.scope) faults.push(`of no column: ${describe(head)}`);

  const channels = (colour) => colour.match(/[\d.]+/g).map(Number);
  const luminance = ([red, green, blue]) => {
    const [r, g, b] = [red, green, blue].map((value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = channels(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] > 0.99) return colour;
    }
    return [255, 255, 255];
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || !visible(element) || element.closest(":disabled, .unseen, [aria-hidden=true]")) continue;
    const [one, other] = [luminance(channels(getComputedStyle(element).color)), luminance(ground(element))];
    const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (contrast < 4.5) faults.push(`contrast ${contrast.toFixed(2)}: ${describe(element)}`);
  }
  return [...new Set(faults)];
}
