// Two dashboards: the fleet, which reads recorded series only, so that it opens at thousands
// of nodes; and one node.
{
  local config = $._config,

  grafanaDashboards+:: {
    'plegd-overview.json': (import 'dashboards/overview.libsonnet')(config),
    'plegd-node.json': (import 'dashboards/node.libsonnet')(config),
  },
}
