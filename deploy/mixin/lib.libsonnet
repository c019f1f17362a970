// Helpers that rules and dashboards share.
function(config) {
  local join(parts, by=', ') = std.join(by, [p for p in parts if p != '']),
  local braces(matchers) = if matchers == '' then '' else '{' + matchers + '}',

  // metric returns a selector of a metric of plegd: metric('pleg_verdict', 'state="unhealthy"').
  metric(name, matchers='', range='', offset='')::
    name + braces(join([config.plegdSelector, matchers]))
    + (if range == '' then '' else '[' + range + ']')
    + (if offset == '' then '' else ' offset ' + offset),

  // last is the newest sample, and for a node whose last scrape failed the one before: a missed
  // scrape ends no alert, and a reason that is over does not linger.
  last(name, matchers=''):: '(%s or last_over_time(%s) unless on (%s) %s)' % [
    $.metric(name, matchers),
    $.metric(name, matchers, config.lookback),
    $.byInstance,
    $.metric('pleg_threshold_seconds'),
  ],

  // up selects the targets that may be plegds, down those that do not answer. Jobs that hold
  // other programs too are left out.
  up:: 'up' + braces(config.upSelector),
  down:: |||
    %(up)s == 0
      and on (%(job)s) last_over_time(cluster:plegd_nodes:count[%(memory)s])
      unless on (%(job)s) count by (%(job)s) (%(up)s == 1) > count by (%(job)s) (%(threshold)s)
  ||| % { up: $.up, job: $.byJob, memory: config.memory, threshold: $.metric('pleg_threshold_seconds') },

  // Labels of a job and of a plegd. Never all labels: a pod's name changes with each rollout.
  byJob:: '%s, job' % config.clusterLabel,
  byInstance:: $.byJob + ', instance',

  rule(record, expr):: { record: record, expr: expr },
  // alert returns a rule; its delay and severity are in the configuration.
  alert(name, expr, summary, description, runbook, extra={}):: {
    alert: name,
    expr: expr,
    [if std.objectHas(config.delays, name) then 'for']: config.delays[name],
    labels: config.alertLabels + { severity: std.get(config.severities, name, 'warning') },
    annotations: { summary: summary, description: description, runbook_url: runbook },
  } + extra,
  group(name, rules):: { name: name, [if config.interval != '' then 'interval']: config.interval, rules: rules },

  // Templates of annotations. of is the series of a name with the alert's values of labels.
  of(name, labels):: {
    local all = [config.clusterLabel, 'job'] + labels,
    format: name + braces(join([l + "='%s'" for l in all], ',')),
    args: join(['$labels.' + l for l in all], ' '),
  },
  sum(a):: a { format: 'sum(%s)' % a.format },
  minus(a, b):: { format: a.format + ' - on () ' + b.format, args: a.args + ' ' + b.args },
  // with renders text for the series as {{ . }}, if there are any.
  with(series, text, expr='%s'):: '{{ with printf "%s" %s | query }}%s{{ end }}' % [expr % series.format, series.args, text],
  number(series):: $.with(series, '{{ . | first | value | printf "%.0f" }}'),

  node:: '{{ or $labels.%s $labels.instance }}' % config.nodeLabel,
  local texts = import 'texts.libsonnet',
  // choose is a template with the text of each reason.
  local choose(field, other) =
    join(['if eq $labels.reason "%s" }}%s' % [r, texts[r][field]] for r in std.objectFields(texts)], '{{ else ') + '{{ else }}' + other + '{{ end }}',

  // cause is the culprit, or the runtime, and its fault.
  cause:: '{{ $c := "runtime" }}'
          + $.with($.of('pleg_culprit', ['instance']), '{{ $c = or (. | first | label "id") (. | first | label "kind") }}')
          + '{{ $c }} {{ ' + choose('cause', 'is involved'),
  nextStep:: '; next: {{ ' + choose('next', 'plegd status on the node'),
  countdown:: $.with($.of('pleg_not_ready_in_seconds', ['instance']), '; API NotReady {{ if eq (. | first | value) 0.0 }}now{{ else }}in {{ . | first | value | humanizeDuration | reReplaceAll " " "" }}{{ end }}'),

  runbook(page):: config.runbookBaseURL + page + config.runbookSuffix,
  // The page of the reason, or the one for a node without a reason.
  reasonRunbook:: $.runbook('{{ if $labels.reason }}reasons/{{ $labels.reason }}{{ else }}troubleshooting{{ end }}'),
}
