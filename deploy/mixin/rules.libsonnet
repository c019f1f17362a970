// The recording rules of a fleet's view. instance: a series for each node, or only for the nodes
// concerned; cluster: a handful for each cluster, independent of its size.
{
  local config = $._config,
  local lib = (import 'lib.libsonnet')(config),
  local m = lib.metric,
  local rule(record, expr) = { record: record, expr: expr },
  // Sums for each cluster and job. The label of the cluster may be missing.
  local by(more='') = 'by (' + lib.byJob + (if more == '' then '' else ', ' + more) + ')',

  prometheusRules+:: {
    groups+: [{
      name: 'plegd-recording',
      [if config.interval != '' then 'interval']: config.interval,
      rules: [
        // Only ages that a healthy node does not have: a fleet that is well has no such series.
        rule('instance:pleg_last_seen_age_seconds:old', '%s > %d' % [m('pleg_last_seen_age_seconds'), config.oldAgeSeconds]),

        rule('cluster:plegd_down:count', |||
          count %(by)s (
            %(up)s == 0
              and on (%(job)s) last_over_time(cluster:plegd_nodes:count[%(memory)s])
              unless on (%(job)s) count %(by)s (%(up)s == 1) > count %(by)s (%(threshold)s)
          )
        ||| % { by: by(), job: lib.byJob, up: lib.up, memory: config.memory, threshold: m('pleg_threshold_seconds') }),
        rule('cluster:pleg_never_seen:count', 'count %s (%s == 0)' % [by(), m('pleg_last_seen_seconds')]),
        rule('cluster:pleg_verdict:sum', 'sum %s (%s)' % [by('state'), m('pleg_verdict')]),
        rule('cluster:pleg_primary_reason:sum', 'sum %s (%s)' % [by('reason'), m('pleg_primary_reason')]),
        // Of the nodes with a reason, how many have the same culprit.
        rule('cluster:pleg_culprit_id:count', 'count %s (%s * on (%s) group_left (reason) instance:pleg_primary_reason:active)' % [by('reason, kind, id'), m('pleg_culprit'), lib.byInstance]),
        rule('cluster:pleg_culprit:sum', 'sum %s (%s)' % [by('kind'), m('pleg_culprit')]),
        rule('cluster:pleg_node_ready_predicted:sum', 'sum %s (%s)' % [by(), m('pleg_node_ready_predicted')]),
        rule('cluster:pleg_last_seen_age_seconds:max', 'max %s (%s)' % [by(), m('pleg_last_seen_age_seconds')]),
        // Of the nodes whose time has not run out.
        rule('cluster:pleg_not_ready_in_seconds:min', 'min %s (%s > 0)' % [by(), m('pleg_not_ready_in_seconds')]),
        rule('cluster:pleg_running_containers:sum', 'sum %s (%s)' % [by('container_state'), m('pleg_running_containers')]),
        rule('cluster:pleg_relist_duration_seconds_bucket:rate5m', 'sum %s (rate(%s))' % [by('le'), m('pleg_relist_duration_seconds_bucket', range='5m')]),
        rule('cluster:pleg_relist_duration_seconds:p99_5m', 'histogram_quantile(0.99, cluster:pleg_relist_duration_seconds_bucket:rate5m)'),
        rule('cluster:pleg_runtime_operations:rate5m', 'sum %s (rate(%s))' % [by('operation_type'), m('pleg_runtime_operations_total', range='5m')]),
        rule('cluster:pleg_runtime_operations_errors:rate5m', 'sum %s (rate(%s))' % [by('operation_type'), m('pleg_runtime_operations_errors_total', range='5m')]),
      ],
    }],
  },
}
