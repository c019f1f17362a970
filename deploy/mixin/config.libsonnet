// Everything that a fleet may want to change. Override a field in a file of your own:
//
//   (import 'mixin.libsonnet') + {_config+:: {nodeLabel: 'kubernetes_node', runbookBaseURL: 'https://wiki.example.org/'}}
{
  _config:: {
    // Label matchers for every metric of plegd, as in 'cluster="a"'. plegd's metric names are
    // its own, so that none is needed where one Prometheus watches one fleet.
    plegdSelector: '',

    // Label matchers for `up`, for a job that plegd shares with other programs. With the
    // default the rules take every job in which each target that answers is a plegd,
    // under any name: plegd, plegd/plegd, kube-system/plegd.
    upSelector: '',

    // Labels of a cluster and of a node. Either may be missing from the metrics: then all
    // nodes are one cluster, and a node has the name of its instance. `instance` must be
    // unique for each node in a job.
    clusterLabel: 'cluster',
    nodeLabel: 'node',

    // A runbook is at runbookBaseURL + page + runbookSuffix; the pages are those of docs/.
    runbookBaseURL: 'https://github.com/plegd/plegd/blob/main/docs/',
    runbookSuffix: '.md',

    // Labels of every alert, for the routes of your Alertmanager.
    alertLabels: {},

    // How often the rules are evaluated; empty: the server's evaluation_interval. No longer
    // than the scrape interval.
    interval: '',
    // When something is wrong.
    notReadySoonSeconds: 60,  // PLEGUnhealthy: time left
    oldAgeSeconds: 10,  // recorded age of single nodes: only above this
    flapping: { incidents: 4, window: '30m' },  // PLEGFlapping
    unstable: { restarts: 3, window: '30m' },  // PlegdFailing

    // A critical reason raises PLEGReasonCritical. A warning raises PLEGReasonWarning if it is one of
    // these, which keep pods from starting or stopping, and else PLEGReasonLasting.
    soon: [
      'KernelLimitReached', 'NodeStatusStalled', 'PodInspectionStall', 'PodStartsFailing', 'PodStopsFailing', 'PodsLost', 'RuntimeHelperStuck', 'RuntimePeerStuck', 'RuntimeMemoryLimited',
      'RuntimeSocketUnlinked', 'RuntimeStorageFull', 'RuntimeStorageLocked', 'RuntimeStorageStall', 'RuntimeThreadStuck', 'ShimStuck',
    ],
    // Reasons that raise another alert, whatever their severity: critical, warning, lasting or none.
    reasons: { RelistLoopStalled: 'warning' },

    // What broken nodes may share: labels of pleg_node_info, and labels of kube_node_labels
    // (kube-state-metrics, --metric-labels-allowlist=nodes=[...]) by the name to show. Where
    // kube_node_labels is absent they are skipped.
    groupLabels: ['runtime_version', 'kernel_version', 'os_image', 'plegd_version', 'runtime_name', 'cgroup_version'],
    kubeNodeLabels: { zone: 'label_topology_kubernetes_io_zone', instance_type: 'label_node_kubernetes_io_instance_type' },
    // PLEGFleetFault: at least so many nodes and this share of a group have had one reason for
    // `hold` within `window`, the group explains so much of all nodes with the reason, with this
    // lift over the rest. evidence keeps chance away: 12 is one in 160,000 for one group. Or so
    // many nodes and massShare of all have had it, and no group explains it.
    commonCause: { nodes: 5, share: '0.03', explained: '0.8', lift: 5, evidence: 12, massShare: '0.1', window: '30m', hold: '1m' },

    // How long plegd must have been known before its node raises an alert.
    newNode: '5m',
    // How long the rules remember a job or a cluster whose plegds are gone.
    memory: '6h',

    // How long something must be wrong before an alert fires, and how long it must be over.
    // PLEGUnhealthy has no delay: the kubelet's own rules have waited.
    delays: {
      PLEGReasonCritical: '150s',
      PLEGReasonWarning: '150s',
      PLEGReasonLasting: '15m',
      PlegdFailing: '10m',
    },
    holds: {
      PLEGUnhealthy: '2m',
      PLEGReasonCritical: '2m',
      PLEGReasonWarning: '5m',
      PLEGReasonLasting: '5m',
      PLEGFleetFault: '2m',
      // Until Alertmanager has reported, every 5 min, that the inhibited alert is resolved.
      PLEGNodeInhibited: '6m',
    },

    severities: {
      PLEGUnhealthy: 'critical',
      PLEGReasonCritical: 'critical',
      PLEGReasonWarning: 'warning',
      PLEGReasonLasting: 'warning',
      PLEGFlapping: 'warning',
      PLEGFleetFault: 'critical',
      PLEGNodeInhibited: 'none',
      PlegdFailing: 'warning',
    },

    dashboardTags: ['plegd', 'kubernetes'],
    overviewUID: 'plegd-overview', nodeUID: 'plegd-node', fleetUID: 'plegd-fleet',
  },
}
