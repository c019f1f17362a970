// Package prometheus holds plegd's rules for Prometheus, as deploy/mixin writes them.
package prometheus

import _ "embed" // the files below

// Alerts is the file of the alerts, in YAML.
//
//go:embed plegd.rules.yml
var Alerts []byte

// Classes says in JSON which alert a reason raises.
//
//go:embed reasons.json
var Classes []byte
