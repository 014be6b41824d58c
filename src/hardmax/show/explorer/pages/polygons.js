// Convex polygons of the plane in exact arithmetic.
//
// A point is [X, Y, W] of BigInt with W >= 0: the point (X / W, Y / W), or a direction where W = 0. A line is
// [a, b, c] of BigInt: a X + b Y + c W. A polygon is its corners in order; one with a corner strictly on each
// side of a line is cut into two that both have interior.

const absolute = (n) => (n < 0n ? -n : n);

function gcd(a, b) {
  a = absolute(a); b = absolute(b);
  while (b) [a, b] = [b, a % b];
  return a;
}

function primitive(triple) {
  const [a, b, c] = triple;
  const g = gcd(gcd(a, b), c);
  return g > 1n ? [a / g, b / g, c / g] : triple;
}

const valueAt = (line, point) => line[0] * point[0] + line[1] * point[1] + line[2] * point[2];

const isZero = (line) => line[0] === 0n && line[1] === 0n && line[2] === 0n;

const minus = (p, q) => [p[0] - q[0], p[1] - q[1], p[2] - q[2]];

const cross = (p, q) => [p[1] * q[2] - p[2] * q[1], p[2] * q[0] - p[0] * q[2], p[0] * q[1] - p[1] * q[0]];

// The parts of a polygon where the line is >= 0 and <= 0; null for a part without interior.
function cut(polygon, line) {
  const values = polygon.map((corner) => valueAt(line, corner));
  const above = values.some((v) => v > 0n), below = values.some((v) => v < 0n);
  if (!below) return [above ? polygon : null, null];
  if (!above) return [null, polygon];
  const upper = [], lower = [];
  for (let i = 0; i < polygon.length; i++) {
    const j = (i + 1) % polygon.length, v = values[i], w = values[j], p = polygon[i], q = polygon[j];
    if (v >= 0n) upper.push(p);
    if (v <= 0n) lower.push(p);
    if ((v > 0n && w < 0n) || (v < 0n && w > 0n)) {
      // positive multiples of both ends, so that W stays >= 0 also between a point and a direction
      const s = absolute(v), t = absolute(w);
      const crossing = primitive([s * q[0] + t * p[0], s * q[1] + t * p[1], s * q[2] + t * p[2]]);
      upper.push(crossing);
      lower.push(crossing);
    }
  }
  return [upper, lower];
}

// A number as numerator and exponent: x = n / 2^e exactly, since every float is a dyadic rational.
function dyadic(x) {
  let e = 0;
  while (!Number.isInteger(x)) { x *= 2; e += 1; }
  return [BigInt(x), e];
}

// Numbers (nested as they are) over one power of two: {n, e}.
function dyadics(numbers) {
  let e = 0;
  const scan = (part) => (Array.isArray(part) ? part.forEach(scan) : (e = Math.max(e, dyadic(part)[1])));
  scan(numbers);
  const scaled = (part) => {
    if (Array.isArray(part)) return part.map(scaled);
    const [n, own] = dyadic(part);
    return n << BigInt(e - own);
  };
  return { n: scaled(numbers), e };
}

const FINE = 60n;

// A rational as the nearest float but for 2^-60: for drawing only.
const toFloat = (n, d) => Number((n << FINE) / d) / Number(1n << FINE);

// The window [x0, x1] x [y0, y1] as one polygon.
function windowPolygons([x0, x1, y0, y1]) {
  const { n: [a, b, c, d], e } = dyadics([x0, x1, y0, y1]);
  const w = 1n << BigInt(e);
  return [[primitive([a, c, w]), primitive([b, c, w]), primitive([b, d, w]), primitive([a, d, w])]];
}

// The whole plane as its four quadrants, each with two corners at infinity.
function planePolygons() {
  const origin = [0n, 0n, 1n], right = [1n, 0n, 0n], up = [0n, 1n, 0n], left = [-1n, 0n, 0n], down = [0n, -1n, 0n];
  return [[origin, right, up], [origin, up, left], [origin, left, down], [origin, down, right]];
}
