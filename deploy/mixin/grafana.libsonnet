// The part of Grafana's dashboard schema that the dashboards use (version 39, Grafana 10.4 and
// newer).
local source = { type: 'prometheus', uid: '${datasource}' };

{
  local g = self,

  // A query is an expression and the name of its lines.
  query(expr, legend=''):: { expr: expr, legend: legend },

  local panel(type, title, queries, description, w, h, defaults={}, options={}, target={ range: true }) = {
    type: type,
    title: title,
    description: description,
    datasource: source,
    targets: std.mapWithIndex(function(i, q) target {
      refId: std.char(std.codepoint('A') + i),
      datasource: source,
      expr: q.expr,
      legendFormat: q.legend,
    }, queries),
    fieldConfig: { overrides: [], defaults: defaults },
    options: options,
    w:: w,
    h:: h,
  },

  row(title):: { type: 'row', title: title, collapsed: false, w:: 24, h:: 1 },

  // lines is a plot over time; custom is for stacked and logarithmic.
  lines(title, queries, unit='none', description='', w=8, h=8, custom={}):: panel('timeseries', title, queries, description, w, h, {
    unit: unit,
    [if custom != g.logarithmic then 'min']: 0,
    color: { mode: 'palette-classic' },
    custom: { drawStyle: 'line', fillOpacity: 8, showPoints: 'never' } + custom,
  }, { legend: { displayMode: 'list', placement: 'bottom', showLegend: true }, tooltip: { mode: 'multi' } }),
  stacked:: { stacking: { mode: 'normal' }, fillOpacity: 50 },
  logarithmic:: { scaleDistribution: { type: 'log', log: 10 } },

  // stat is the last value or, with textMode name, the last name. steps: the first color, then
  // values with their colors.
  stat(title, query, steps, none='0', unit='none', textMode='value', description='', w=3):: panel('stat', title, [query], description, w, 4, {
    unit: unit,
    noValue: none,
    color: { mode: 'thresholds' },
    thresholds: { mode: 'absolute', steps: [{ color: steps[0], value: null }] + [{ value: s[0], color: s[1] } for s in steps[1:]] },
  }, { textMode: textMode, colorMode: 'value', graphMode: 'none', reduceOptions: { calcs: ['lastNotNull'] } }, { instant: true, range: false }),

  // heatmap shows the buckets of a histogram over time: classic ones, or a native histogram.
  heatmap(title, expr, description='', w=8):: panel(
    'heatmap', title, [g.query(expr, '{{le}}')], description, w, 8, {}, { calculate: false, yAxis: { unit: 's' } }, { format: 'heatmap', range: true }
  ),

  // timeline shows when series were 1.
  timeline(title, query, on, off='', description=''):: panel('state-timeline', title, [query], description, 12, 7, {
    color: { mode: 'thresholds' },
    thresholds: { mode: 'absolute', steps: [{ color: 'transparent', value: null }] },
    mappings: [{ type: 'value', options: {
      '0': { text: off, color: 'transparent', index: 0 },
      '1': { text: on, color: 'orange', index: 1 },
    } }],
  }, { mergeValues: false, showValue: 'never', rowHeight: 0.8, legend: { showLegend: false }, tooltip: { mode: 'single' } }),

  // table shows the labels of what a query returns now.
  table(title, expr, hidden, description='', w=12, links=[]):: panel(
    'table', title, [g.query(expr)], description, w, 8, { links: links }, {}, { instant: true, range: false, format: 'table' }
  ) + { transformations: [{ id: 'organize', options: { excludeByName: { [h]: true for h in hidden } } }] },

  link(title, url):: { title: title, type: 'link', url: url, targetBlank: true },

  // variable is chosen by label values; many: several or all, also where the label is missing.
  variable(name, query, many=true):: {
    name: name,
    type: 'query',
    datasource: source,
    query: { query: query, refId: name },
    refresh: 2,
    sort: 1,
    includeAll: many,
    multi: many,
    [if many then 'allValue']: '.*',
  },

  // annotation marks the time in which an alert of ALERTS fires.
  annotation(matchers, title, text):: {
    name: 'alerts',
    datasource: source,
    enable: true,
    iconColor: 'red',
    expr: 'ALERTS{alertstate="firing", %s}' % matchers,
    titleFormat: title,
    textFormat: text,
  },

  // layout puts panels beside each other, and into the next line where one is full.
  local layout(panels) = std.foldl(
    function(at, p)
      local next = at.x + p.w > 24;
      local x = if next then 0 else at.x;
      local y = if next then at.y + at.h else at.y;
      {
        x: x + p.w,
        y: y,
        h: if next then p.h else std.max(at.h, p.h),
        panels: at.panels + [p { id: std.length(at.panels) + 1, gridPos: { x: x, y: y, w: p.w, h: p.h } }],
      },
    panels,
    { x: 0, y: 0, h: 0, panels: [] }
  ).panels,

  dashboard(uid, title, description, tags, range, refresh, annotation, links, variables, panels):: {
    uid: uid,
    title: title,
    description: description,
    tags: tags,
    refresh: refresh,
    time: { from: 'now-' + range, to: 'now' },
    templating: { list: [{ name: 'datasource', type: 'datasource', query: 'prometheus', includeAll: false, multi: false }] + variables },
    annotations: { list: [annotation] },
    links: links,
    panels: layout(panels),
  } + { schemaVersion: 39, version: 1, editable: true, graphTooltip: 1, timezone: 'browser' },
}
