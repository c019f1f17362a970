package main

// The part of Grafana's dashboard schema that the dashboard uses (version 39,
// Grafana 10.4 and newer). The test decodes the file into it strictly.

type dashboard struct {
	UID           string     `json:"uid"`
	Title         string     `json:"title"`
	Description   string     `json:"description"`
	Tags          []string   `json:"tags"`
	SchemaVersion int        `json:"schemaVersion"`
	Version       int        `json:"version"`
	Editable      bool       `json:"editable"`
	GraphTooltip  int        `json:"graphTooltip"`
	Refresh       string     `json:"refresh"`
	Timezone      string     `json:"timezone"`
	Time          timeRange  `json:"time"`
	Templating    templating `json:"templating"`
	Annotations   listOf     `json:"annotations"`
	Links         []link     `json:"links"`
	Panels        []panel    `json:"panels"`
}

type timeRange struct {
	From string `json:"from"`
	To   string `json:"to"`
}

type listOf struct {
	List []annotation `json:"list"`
}

type annotation struct {
	Name       string     `json:"name"`
	Datasource datasource `json:"datasource"`
	Enable     bool       `json:"enable"`
	IconColor  string     `json:"iconColor"`
	Expr       string     `json:"expr"`
	TitleFmt   string     `json:"titleFormat"`
	TextFmt    string     `json:"textFormat"`
}

type templating struct {
	List []variable `json:"list"`
}

type variable struct {
	Name       string      `json:"name"`
	Label      string      `json:"label"`
	Type       string      `json:"type"`
	Datasource *datasource `json:"datasource,omitempty"`
	Query      any         `json:"query"`
	Refresh    int         `json:"refresh,omitempty"`
	Sort       int         `json:"sort,omitempty"`
	IncludeAll bool        `json:"includeAll"`
	Multi      bool        `json:"multi"`
	AllValue   string      `json:"allValue,omitempty"`
}

type variableQuery struct {
	Query string `json:"query"`
	RefID string `json:"refId"`
}

type datasource struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

type link struct {
	Title       string `json:"title"`
	Type        string `json:"type"`
	URL         string `json:"url"`
	TargetBlank bool   `json:"targetBlank"`
}

type panel struct {
	ID              int              `json:"id"`
	Type            string           `json:"type"`
	Title           string           `json:"title"`
	Description     string           `json:"description,omitempty"`
	Datasource      *datasource      `json:"datasource,omitempty"`
	GridPos         gridPos          `json:"gridPos"`
	Collapsed       *bool            `json:"collapsed,omitempty"`
	Panels          []panel          `json:"panels,omitempty"`
	Targets         []target         `json:"targets,omitempty"`
	FieldConfig     *fieldConfig     `json:"fieldConfig,omitempty"`
	Options         *options         `json:"options,omitempty"`
	Transformations []transformation `json:"transformations,omitempty"`
}

type gridPos struct {
	H int `json:"h"`
	W int `json:"w"`
	X int `json:"x"`
	Y int `json:"y"`
}

type target struct {
	RefID        string     `json:"refId"`
	Datasource   datasource `json:"datasource"`
	Expr         string     `json:"expr"`
	LegendFormat string     `json:"legendFormat,omitempty"`
	Format       string     `json:"format,omitempty"`
	Instant      bool       `json:"instant,omitempty"`
	Range        bool       `json:"range,omitempty"`
}

type fieldConfig struct {
	Defaults  fieldDefaults `json:"defaults"`
	Overrides []any         `json:"overrides"`
}

type fieldDefaults struct {
	Unit       string      `json:"unit,omitempty"`
	Min        *float64    `json:"min,omitempty"`
	Max        *float64    `json:"max,omitempty"`
	NoValue    string      `json:"noValue,omitempty"`
	Color      *color      `json:"color,omitempty"`
	Thresholds *thresholds `json:"thresholds,omitempty"`
	Mappings   []mapping   `json:"mappings,omitempty"`
	Custom     *custom     `json:"custom,omitempty"`
	Links      []link      `json:"links,omitempty"`
}

type color struct {
	Mode string `json:"mode"`
}

type thresholds struct {
	Mode  string `json:"mode"`
	Steps []step `json:"steps"`
}

type step struct {
	Color string   `json:"color"`
	Value *float64 `json:"value"`
}

type mapping struct {
	Type    string             `json:"type"`
	Options map[string]mapText `json:"options"`
}

type mapText struct {
	Text  string `json:"text"`
	Color string `json:"color"`
	Index int    `json:"index"`
}

type custom struct {
	DrawStyle         string    `json:"drawStyle,omitempty"`
	FillOpacity       int       `json:"fillOpacity,omitempty"`
	ShowPoints        string    `json:"showPoints,omitempty"`
	Stacking          *stacking `json:"stacking,omitempty"`
	ScaleDistribution *scale    `json:"scaleDistribution,omitempty"`
}

type stacking struct {
	Mode string `json:"mode"`
}

type scale struct {
	Type string `json:"type"`
	Log  int    `json:"log"`
}

type options struct {
	TextMode      string         `json:"textMode,omitempty"`
	ColorMode     string         `json:"colorMode,omitempty"`
	GraphMode     string         `json:"graphMode,omitempty"`
	ReduceOptions *reduceOptions `json:"reduceOptions,omitempty"`
	Calculate     *bool          `json:"calculate,omitempty"`
	YAxis         *axis          `json:"yAxis,omitempty"`
	MergeValues   *bool          `json:"mergeValues,omitempty"`
	ShowValue     string         `json:"showValue,omitempty"`
	RowHeight     float64        `json:"rowHeight,omitempty"`
	Legend        *legend        `json:"legend,omitempty"`
	Tooltip       *tooltip       `json:"tooltip,omitempty"`
}

type reduceOptions struct {
	Calcs []string `json:"calcs"`
}

type axis struct {
	Unit string `json:"unit"`
}

type legend struct {
	DisplayMode string `json:"displayMode"`
	Placement   string `json:"placement"`
	ShowLegend  bool   `json:"showLegend"`
}

type tooltip struct {
	Mode string `json:"mode"`
}

type transformation struct {
	ID      string         `json:"id"`
	Options map[string]any `json:"options"`
}
