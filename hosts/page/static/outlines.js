// The outlines of lines and arrows, as the data of SVG paths. A point is [x, y].

/** Return a path through these points with rounded corners, as the data of a path. The first corner of a
 * closed one is rounded too. */
export function rounded(points, radius, isClosed = false) {
  const corners = points.slice(1, -1).map((corner, index) => bend(points[index], corner, points[index + 2], radius));
  if (!isClosed) return `M${points[0].join(" ")}${corners.map(curve).join("")}L${points.at(-1).join(" ")}`;
  const first = bend(points.at(-2), points[0], points[1], radius);
  return `M${first.to.join(" ")}${corners.map(curve).join("")}${curve(first)}`;
}

function curve({ from, corner, to }) {
  return `L${from.join(" ")}Q${corner.join(" ")} ${to.join(" ")}`;
}

function bend(before, corner, after, radius) {
  return { from: towards(corner, before, radius), corner, to: towards(corner, after, radius) };
}

function towards([x, y], [endX, endY], distance) {
  const length = Math.hypot(endX - x, endY - y);
  const part = Math.min(distance, length / 2) / length;
  return [x + (endX - x) * part, y + (endY - y) * part];
}

/** Return the head of an arrow that ends at the last of these points, as the data of a path. */
export function arrowHead(points, length) {
  const [[fromX, fromY], [x, y]] = points.slice(-2);
  const [across, down] = [Math.sign(x - fromX), Math.sign(y - fromY)];
  const [backX, backY] = [x - across * length, y - down * length];
  const [sideX, sideY] = [(down * length) / 2, (across * length) / 2];
  return `M${x} ${y}L${backX + sideX} ${backY + sideY}L${backX - sideX} ${backY - sideY}Z`;
}
