// Helpers that rules and dashboards share.
function(config) {
  local join(parts, by=', ') = std.join(by, [p for p in parts if p != '']),
  local braces(matchers) = if matchers == '' then '' else '{' + matchers + '}',

  // metric returns a selector of a metric of plegd: metric('pleg_verdict', 'state="unhealthy"').
  metric(name, matchers='', range='', offset='')::
    name + braces(join([config.plegdSelector, matchers]))
    + (if range == '' then '' else '[' + range + ']')
    + (if offset == '' then '' else ' offset ' + offset),

  // up selects the targets that may be plegds, down those that do not answer. Jobs that hold
  // other programs too are left out.
  up:: 'up' + braces(config.upSelector),
  down:: |||
    max by (%(node)s) (%(up)s == 0)
      and on (%(job)s) last_over_time(cluster:plegd_nodes:count[%(memory)s])
      unless on (%(job)s) count by (%(job)s) (%(up)s == 1) > count by (%(job)s) (%(threshold)s)
  ||| % { node: $.byNode, up: $.up, job: $.byJob, memory: config.memory, threshold: $.threshold },

  // Labels of a job, of a plegd, and of what is known of its node. Never all labels: a pod's name
  // changes with each rollout.
  byJob:: '%s, job' % config.clusterLabel,
  byInstance:: $.byJob + ', instance',
  byNode:: '%s, %s' % [$.byInstance, config.nodeLabel],

  threshold:: $.metric('pleg_threshold_seconds'),
  // known selects nodes that are not new: one that boots may have its network minutes later than
  // plegd.
  known:: 'last_over_time(%s)' % $.metric('pleg_threshold_seconds', range='2m', offset=config.newNode),

  rule(record, expr, labels=null):: { record: record, expr: expr, [if labels != null then 'labels']: labels },
  // alert returns a rule; its delays and severity are in the configuration.
  alert(name, expr, summary, description, runbook):: {
    alert: name,
    expr: expr,
    [if std.objectHas(config.delays, name) then 'for']: config.delays[name],
    [if std.objectHas(config.holds, name) then 'keep_firing_for']: config.holds[name],
    labels: config.alertLabels + { severity: config.severities[name] },
    annotations: { summary: summary, description: description, runbook_url: runbook },
  },
  group(name, rules):: { name: name, [if config.interval != '' then 'interval']: config.interval, rules: rules },

  // Templates of annotations. of is the series of a name with the alert's values of labels.
  of(name, labels):: {
    local all = [config.clusterLabel, 'job'] + labels,
    format: name + braces(join([l + "='%s'" for l in all], ',')),
    args: join(['$labels.' + l for l in all], ' '),
  },
  // with renders text for the series as {{ . }}, or the other text if there are none.
  with(series, text, expr='%s', other=''):: '{{ with printf "%s" %s | query }}%s%s{{ end }}' % [expr % series.format, series.args, text, if other == '' then '' else '{{ else }}' + other],

  node:: '{{ or $labels.%s $labels.instance }}' % config.nodeLabel,
  // message is the text of one node: cause, culprit, the time of NotReady and the next step, in
  // one lookup.
  message:: $.node + ': ' + $.with(
    $.of('instance:pleg_message:info', ['instance']),
    '{{ with . | first }}{{ .Labels.reason }}: {{ .Labels.cause }}{{ with .Labels.culprit }} (culprit: {{ . }}){{ end }}'
    + '{{ if gt .Value 1.0 }}; API NotReady expected at {{ (.Value | toTime).Format "15:04:05" }} UTC{{ end }}; next: {{ .Labels.next }}{{ end }}',
    other='{{ with $labels.reason }}{{ . }}{{ else }}the kubelet does not manage its pods{{ end }}; next: plegd status on the node',
  ),

  runbook(page):: config.runbookBaseURL + page + config.runbookSuffix,
}
