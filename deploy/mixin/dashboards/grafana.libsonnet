// The part of Grafana's dashboard schema that the dashboards use (version 39, Grafana 10.4 and
// newer).
local width = 24;
local source = { type: 'prometheus', uid: '${datasource}' };

{
  local g = self,
  source:: source,

  // query is an expression and the name of its lines.
  query(expr, legend=''):: { expr: expr, legend: legend },

  local targets(queries, extra={}) = std.mapWithIndex(
    function(i, q) {
      refId: std.char(std.codepoint('A') + i),
      datasource: source,
      expr: q.expr,
      legendFormat: q.legend,
      range: true,
    } + extra,
    queries
  ),
  local instant = { instant: true, range: false },

  row(title):: { type: 'row', title: title, collapsed: false, w:: width, h:: 1 },

  // lines is a plot over time.
  lines(title, description, unit, queries, w=8, h=8):: {
    type: 'timeseries',
    title: title,
    description: description,
    targets: targets(queries),
    fieldConfig: { overrides: [], defaults: {
      unit: unit,
      min: 0,
      color: { mode: 'palette-classic' },
      custom: { drawStyle: 'line', fillOpacity: 8, showPoints: 'never' },
    } },
    options: { legend: { displayMode: 'list', placement: 'bottom', showLegend: true }, tooltip: { mode: 'multi' } },
    w:: w,
    h:: h,
  },

  // stacked is a plot whose lines add up.
  stacked(title, description, unit, queries, w=8, h=8):: g.lines(title, description, unit, queries, w, h) + {
    fieldConfig+: { defaults+: { custom+: { stacking: { mode: 'normal' }, fillOpacity: 50 } } },
  },

  // steps returns thresholds: the first color, then value and color by turns.
  steps(first, rest=[]):: [{ color: first, value: null }] + [{ value: r[0], color: r[1] } for r in rest],

  // stat is the last value, large.
  stat(title, description, unit, none, textMode, steps, queries, w=4, h=4):: {
    type: 'stat',
    title: title,
    description: description,
    targets: targets(queries, instant),
    fieldConfig: { overrides: [], defaults: {
      unit: unit,
      noValue: none,
      color: { mode: 'thresholds' },
      thresholds: { mode: 'absolute', steps: steps },
    } },
    options: { textMode: textMode, colorMode: 'value', graphMode: 'none', reduceOptions: { calcs: ['lastNotNull'] } },
    w:: w,
    h:: h,
  },

  // heatmap shows the buckets of a histogram over time.
  heatmap(title, description, expr, w=8, h=8):: {
    type: 'heatmap',
    title: title,
    description: description,
    targets: targets([g.query(expr, '{{le}}')], { format: 'heatmap' }),
    fieldConfig: { overrides: [], defaults: {} },
    options: { calculate: false, yAxis: { unit: 's' } },
    w:: w,
    h:: h,
  },

  // timeline shows which series were 1, and when.
  timeline(title, description, on, off, queries, w=12, h=7):: {
    type: 'state-timeline',
    title: title,
    description: description,
    targets: targets(queries),
    fieldConfig: { overrides: [], defaults: {
      color: { mode: 'thresholds' },
      thresholds: { mode: 'absolute', steps: [{ color: 'transparent', value: null }] },
      mappings: [{ type: 'value', options: {
        '0': { text: off, color: 'transparent', index: 0 },
        '1': { text: on, color: 'orange', index: 1 },
      } }],
    } },
    options: {
      mergeValues: false,
      showValue: 'never',
      rowHeight: 0.8,
      legend: { displayMode: 'list', placement: 'bottom', showLegend: false },
      tooltip: { mode: 'single' },
    },
    w:: w,
    h:: h,
  },

  // table shows the labels of what a query returns now.
  table(title, description, expr, hidden, links, w=8, h=8):: {
    type: 'table',
    title: title,
    description: description,
    targets: targets([g.query(expr)], instant + { format: 'table' }),
    fieldConfig: { overrides: [], defaults: { links: links } },
    transformations: [{ id: 'organize', options: { excludeByName: { [h]: true for h in hidden } } }],
    w:: w,
    h:: h,
  },

  link(title, url):: { title: title, type: 'link', url: url, targetBlank: true },

  variable(name, label, query, all):: {
    name: name,
    label: label,
    type: 'query',
    datasource: source,
    query: { query: query, refId: name },
    refresh: 2,
    sort: 1,
    includeAll: all,
    multi: all,
    // Also where the label is missing.
    [if all then 'allValue']: '.*',
  },

  // layout puts panels beside each other, and into the next line where one is full.
  local layout(panels) = std.foldl(
    function(at, p)
      local wrap = at.x + p.w > width;
      local x = if wrap then 0 else at.x;
      local y = if wrap then at.y + at.h else at.y;
      {
        x: x + p.w,
        y: y,
        h: if wrap then p.h else std.max(at.h, p.h),
        panels: at.panels + [
          p
          + { id: std.length(at.panels) + 1, gridPos: { x: x, y: y, w: p.w, h: p.h } }
          + (if p.type == 'row' then {} else { datasource: source }),
        ],
      },
    panels,
    { x: 0, y: 0, h: 0, panels: [] }
  ).panels,

  dashboard(uid, title, description, tags, from, refresh, variables, annotations, links, panels):: {
    uid: uid,
    title: title,
    description: description,
    tags: tags,
    schemaVersion: 39,
    version: 1,
    editable: true,
    graphTooltip: 1,
    refresh: refresh,
    timezone: 'browser',
    time: { from: from, to: 'now' },
    templating: { list: [{
      name: 'datasource',
      label: 'Prometheus',
      type: 'datasource',
      query: 'prometheus',
      includeAll: false,
      multi: false,
    }] + variables },
    annotations: { list: annotations },
    links: links,
    panels: layout(panels),
  },
}
