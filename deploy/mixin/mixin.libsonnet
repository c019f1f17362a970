(import 'config.libsonnet') + (import 'alerts.libsonnet') + (import 'rules.libsonnet') + (import 'fleet.libsonnet') + (import 'dashboards.libsonnet')
