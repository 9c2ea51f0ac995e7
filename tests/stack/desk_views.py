"""Expressions that look at how a page is drawn: what sticks out, and what is hard to read."""

OUTSIDE = """
[...document.querySelectorAll('body *')].filter(one => {
  const box = one.getBoundingClientRect(), frame = one.closest('.graph, .command, pre, .unseen, .skip, thead, ul#hits');
  const outside = box.right > document.documentElement.clientWidth + 1 || box.left < -1;
  return box.width && outside && (!frame || frame === one) && !one.matches('.unseen, .skip, thead');
}).map(one => one.outerHTML.slice(0, 120))
"""

CONTRAST = """
(() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgba = colour => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([red, green, blue]) => {
    const [r, g, b] = [red, green, blue]
      .map(one => one / 255)
      .map(one => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = one => {
    for (; one; one = one.parentElement) {
      const [r, g, b, a] = rgba(getComputedStyle(one).backgroundColor);
      if (a === 255) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const worst = {};
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const one = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !one.checkVisibility() || one.closest(':disabled, noscript')) continue;
    const style = getComputedStyle(one);
    const box = one.closest('.node')?.querySelector('rect');
    const behind = box ? rgba(getComputedStyle(box).fill) : ground(one);
    const found = ratio(light(rgba(one.closest('svg') ? style.fill : style.color)), light(behind));
    const name = `${one.tagName} ${one.getAttribute('class')}`;
    worst[name] = Math.min(worst[name] ?? 99, found);
  }
  return worst;
})()
"""
"""The least contrast of text by element (WCAG 2.2, 1.4.3)."""

UNNAMED = """
[...document.querySelectorAll('button, input, select, textarea, a[href]')].filter(one =>
  one.checkVisibility() && ![one.ariaLabel, one.innerText, one.labels?.[0]?.innerText].some(name => name?.trim())
).map(one => one.outerHTML.slice(0, 120))
"""
"""What a screen reader could not name."""
