// The recording rules of a fleet's view. instance: a series for each node, or only for the nodes
// concerned; cluster: a handful for each cluster, independent of its size.
{
  local config = $._config,
  local lib = (import 'lib.libsonnet')(config),
  local m = lib.metric,
  local rule = lib.rule,
  // sum for each cluster and job. The label of the cluster may be missing.
  local by(more='', op='sum') = '%s by (%s%s) ' % [op, lib.byJob, if more == '' then '' else ', ' + more],
  local summed(name, label='') = rule('cluster:%s:sum' % name, by(label) + '(%s)' % m(name)),
  local rate(name, label) = by(label) + '(rate(%s))' % m(name, range='5m'),

  prometheusRules+:: {
    groups+: [lib.group('plegd-recording', [
      // Only ages that a healthy node does not have: a fleet that is well has no such series.
      rule('instance:pleg_last_seen_age_seconds:old', '%s > %d' % [m('pleg_last_seen_age_seconds'), config.oldAgeSeconds]),

      rule('cluster:plegd_down:count', '%s(\n%s)' % [by(op='count'), lib.down]),
      rule('cluster:pleg_never_seen:count', by(op='count') + '(%s == 0)' % m('pleg_last_seen_seconds')),
      summed('pleg_verdict', 'state'),
      summed('pleg_primary_reason', 'reason'),
      // Of the nodes with a reason, how many have the same culprit.
      rule('cluster:pleg_culprit_id:count', by('reason, kind, id', 'count') + '(%s * on (%s) group_left (reason) topk by (%s) (1, instance:pleg_primary_reason:active))' % [m('pleg_culprit'), lib.byInstance, lib.byInstance]),
      summed('pleg_node_ready_predicted'),
      rule('cluster:pleg_last_seen_age_seconds:max', by(op='max') + '(%s)' % m('pleg_last_seen_age_seconds')),
      // Of the nodes whose time has not run out.
      rule('cluster:pleg_not_ready_in_seconds:min', by(op='min') + '(%s > 0)' % m('pleg_not_ready_in_seconds')),
      summed('pleg_running_containers', 'container_state'),
      // Classic buckets, and the native histogram: a server stores one or both.
      rule('cluster:pleg_relist_duration_seconds_bucket:rate5m', rate('pleg_relist_duration_seconds_bucket', 'le')),
      rule('cluster:pleg_relist_duration_seconds:rate5m', by() + '(rate(%s))' % m('pleg_relist_duration_seconds', range='5m')),
      rule('cluster:pleg_runtime_operations:rate5m', rate('pleg_runtime_operations_total', 'operation_type')),
      rule('cluster:pleg_runtime_operations_errors:rate5m', rate('pleg_runtime_operations_errors_total', 'operation_type')),
    ])],
  },
}
