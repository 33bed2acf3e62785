// Numbers and words as people read them; the same rules as kvlab/display/quantities.py.
const THIN = "\u202f";
const escaped = text => String(text ?? "").replace(/[&<>"']/g, c => `&#${c.charCodeAt(0)};`);
// A text as markup in which no line ends inside a name such as worker-0, or between a number and its unit.
const KEPT = /[\w.:/]+(?:-[\w.:/]+)+|\d[\d.\u202f]* (?:ms|s|%|B|[KMG]iB)(?:\/s)?(?!\w)/g;
const unbroken = text => escaped(text).replace(KEPT, kept => `<span class="whole">${kept}</span>`);
const count = n => n == null ? "–" : Math.round(n).toString().replace(/\B(?=(\d{3})+$)/g, THIN);
// "1 token", "1 024 tokens"; `many` is the plural where an s does not make it.
const counted = (n, noun, many = `${noun}s`) => `${count(n)} ${n === 1 ? noun : many}`;
// As Python rounds: an exact half goes to the even neighbour. Only multiples of a power of a half can be exact halves; of
// the others toFixed knows every digit, which a product would lose.
const fixed = (x, digits) => {
  if (x < 0) return `-${fixed(-x, digits)}`;
  const scaled = x * 10 ** digits, floor = Math.floor(scaled), half = scaled - floor === 0.5 && Number.isInteger(x * 2 ** (digits + 1));
  return half ? ((floor % 2 ? floor + 1 : floor) / 10 ** digits).toFixed(digits) : x.toFixed(digits);
};
const seconds = s => {
  if (s == null) return "–";
  const size = Math.abs(s);
  if (size < 0.1) return `${fixed(s * 1e3, size > 0 && size < 0.01 ? 1 : 0)} ms`;
  return `${fixed(s, size < 10 ? 2 : 1)} s`;
};
const bytes = n => {
  if (n == null) return "–";
  if (Math.abs(n) < 1024) return `${n} B`;
  const [unit, size, digits] = [["KiB", 2 ** 10, 1], ["MiB", 2 ** 20, 1], ["GiB", 2 ** 30, 2]]
    .find(([u, s]) => u === "GiB" || Math.abs(n) < s * 1024);
  const [whole, rest] = fixed(n / size, digits).split(".");
  return `${count(whole)}.${rest} ${unit}`;
};
const share = x => x == null ? "–" : `${fixed(100 * x, 0)} %`;
const percent = x => x == null ? "–" : `${x < 0 ? "−" : "+"}${share(Math.abs(x))}`;

// Index behind the last value that is at most v, in a sorted array.
const upper = (sorted, v, end = sorted.length) => {
  let low = 0;
  while (low < end) { const mid = (low + end) >> 1; if (sorted[mid] <= v) low = mid + 1; else end = mid; }
  return low;
};
// The next 1, 2 or 5 times a power of ten: axes whose ends change seldom are laid out seldom.
const round125 = v => {
  if (!(v > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(v)), m = v / power;
  return (m <= 1 ? 1 : m <= 2 ? 2 : m <= 5 ? 5 : 10) * power;
};
// Round ends and ticks for bytes: a power of two times 1, or times 1.5.
const roundBytes = v => { let top = 1024; while (top < v) top *= 2; return top * 0.75 >= v ? top * 0.75 : top; };
const table = (head, rows, numeric = []) => {
  const side = i => numeric.includes(i) ? ' class="n"' : "";
  return `<table><thead><tr>${head.map((h, i) => `<th scope="col"${side(i)}>${escaped(h)}</th>`).join("")}</tr></thead><tbody>` +
    rows.map(r => `<tr>${r.map((c, i) => `<td${side(i)}>${escaped(c)}</td>`).join("")}</tr>`).join("") + "</tbody></table>";
};
