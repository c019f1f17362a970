package main

import "fmt"

// source is the Prometheus that the reader chooses.
var source = datasource{Type: "prometheus", UID: "${datasource}"}

func newDashboard() dashboard {
	d := dashboard{
		UID: "plegd", Title: "plegd: nodes and their PLEG",
		Description: "Made from deploy/grafana of plegd. Wants the labels of deploy/prometheus: job, node, and cluster where there are several.",
		Tags:        []string{"plegd", "kubernetes"}, SchemaVersion: 39, Version: 1, Editable: true, GraphTooltip: 1,
		Refresh: "15s", Timezone: "browser", Time: timeRange{"now-1h", "now"},
		Templating: templating{variables()},
		Annotations: listOf{[]annotation{{
			Name: "alerts", Datasource: source, Enable: true, IconColor: "red",
			Expr:     `ALERTS{alertname=~"PLEG.*|Plegd.*", alertstate="firing", severity!="none", ` + nodes + `, node=~"$node"}`,
			TitleFmt: "{{alertname}}", TextFmt: "{{node}} {{reason}}",
		}}},
		Links: []link{{Title: "Reasons", Type: "link", URL: "https://github.com/plegd/plegd/blob/main/docs/reasons/README.md", TargetBlank: true}},
	}
	b := &layout{}
	fleetPanels(b)
	nodePanels(b)
	d.Panels = b.panels
	return d
}

func variables() []variable {
	of := func(name, label, query string, all bool) variable {
		v := variable{
			Name: name, Label: label, Type: "query", Datasource: &source, Refresh: 2, Sort: 1,
			Query: variableQuery{Query: query, RefID: name}, IncludeAll: all, Multi: all,
		}
		if all {
			v.AllValue = ".*" // also where the label is missing
		}
		return v
	}
	return []variable{
		{Name: "datasource", Label: "Prometheus", Type: "datasource", Query: "prometheus"},
		of("cluster", "Cluster", "label_values(pleg_threshold_seconds, cluster)", true),
		of("job", "Job", `label_values(pleg_threshold_seconds{cluster=~"$cluster"}, job)`, true),
		of("node", "Node", `label_values(pleg_threshold_seconds{cluster=~"$cluster", job=~"$job"}, node)`, false),
	}
}

// layout puts panels beside each other, and into the next line when it is full.
type layout struct {
	panels       []panel
	x, y, height int
}

// width is the grid's.
const width = 24

func (l *layout) row(title string) {
	l.y, l.x = l.y+l.height, 0
	l.height = 1
	no := false
	l.put(panel{Type: "row", Title: title, Collapsed: &no}, width, 1)
}

func (l *layout) put(p panel, w, h int) {
	if l.x+w > width {
		l.x, l.y, l.height = 0, l.y+l.height, 0
	}
	p.ID, p.GridPos = len(l.panels)+1, gridPos{H: h, W: w, X: l.x, Y: l.y}
	l.x, l.height = l.x+w, max(l.height, h)
	if p.Type != "row" {
		p.Datasource = &source
	}
	l.panels = append(l.panels, p)
}

// query is an expression and the name of its lines.
type query struct{ expr, legend string }

func targets(queries []query, edit func(*target)) []target {
	var out []target
	for i, q := range queries {
		t := target{RefID: string(rune('A' + i)), Datasource: source, Expr: q.expr, LegendFormat: q.legend, Range: true}
		if edit != nil {
			edit(&t)
		}
		out = append(out, t)
	}
	return out
}

func number(f float64) *float64 { return &f }

// lines is a plot over time.
func lines(title, description, unit string, queries ...query) panel {
	return panel{
		Type: "timeseries", Title: title, Description: description, Targets: targets(queries, nil),
		FieldConfig: &fieldConfig{Overrides: []any{}, Defaults: fieldDefaults{
			Unit: unit, Min: number(0), Color: &color{"palette-classic"}, Custom: &custom{DrawStyle: "line", FillOpacity: 8, ShowPoints: "never"},
		}},
		Options: &options{Legend: &legend{"list", "bottom", true}, Tooltip: &tooltip{"multi"}},
	}
}

// stacked is a plot whose lines add up.
func stacked(title, description, unit string, queries ...query) panel {
	p := lines(title, description, unit, queries...)
	p.FieldConfig.Defaults.Custom.Stacking = &stacking{"normal"}
	p.FieldConfig.Defaults.Custom.FillOpacity = 50
	return p
}

// stat is the last value, large. Colors are by the steps given.
func stat(title, description, unit, none, textMode string, steps []step, queries ...query) panel {
	return panel{
		Type: "stat", Title: title, Description: description,
		Targets: targets(queries, func(t *target) { t.Instant, t.Range = true, false }),
		FieldConfig: &fieldConfig{Overrides: []any{}, Defaults: fieldDefaults{
			Unit: unit, NoValue: none, Color: &color{"thresholds"}, Thresholds: &thresholds{"absolute", steps},
		}},
		Options: &options{TextMode: textMode, ColorMode: "value", GraphMode: "none", ReduceOptions: &reduceOptions{[]string{"lastNotNull"}}},
	}
}

// heatmap shows a histogram's buckets over time.
func heatmap(title, description, expr string) panel {
	no := false
	return panel{
		Type: "heatmap", Title: title, Description: description,
		Targets:     targets([]query{{expr, "{{le}}"}}, func(t *target) { t.Format = "heatmap" }),
		FieldConfig: &fieldConfig{Overrides: []any{}},
		Options:     &options{Calculate: &no, YAxis: &axis{"s"}},
	}
}

// timeline shows what was 1 and when.
func timeline(title, description string, on, off string, queries ...query) panel {
	no := false
	return panel{
		Type: "state-timeline", Title: title, Description: description, Targets: targets(queries, nil),
		FieldConfig: &fieldConfig{Overrides: []any{}, Defaults: fieldDefaults{
			Color: &color{"thresholds"}, Thresholds: &thresholds{"absolute", []step{{"transparent", nil}}},
			Mappings: []mapping{{Type: "value", Options: map[string]mapText{
				"0": {off, "transparent", 0}, "1": {on, "orange", 1},
			}}},
		}},
		Options: &options{MergeValues: &no, ShowValue: "never", RowHeight: 0.8, Legend: &legend{"list", "bottom", false}, Tooltip: &tooltip{"single"}},
	}
}

func steps(colors ...any) []step {
	out := []step{{Color: fmt.Sprint(colors[0])}}
	for i := 1; i+1 < len(colors); i += 2 {
		v, _ := colors[i].(int)
		out = append(out, step{Color: fmt.Sprint(colors[i+1]), Value: number(float64(v))})
	}
	return out
}
