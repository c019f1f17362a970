//go:build e2e

package observe

import (
	"encoding/json"
	"fmt"
	"html"
	"math"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
)

// A panel is what the picture draws of a dashboard's panel.
type panel struct {
	Title   string
	Targets []struct {
		Expr, LegendFormat string
		Instant            bool
	}
}

// A series is one result of a panel's query.
type series struct {
	Metric map[string]string
	Value  [2]any
	Values [][2]any
}

// A drawing is an SVG with panels of the dashboard "What do they share?".
type drawing struct {
	strings.Builder
	t          *testing.T
	base       string
	panels     []panel
	begin, end time.Time
}

const style = `<style>
text{font:13px system-ui,sans-serif;fill:#24292f}.dim{fill:#57606a;font-size:12px}.title{font-weight:600}
.card{fill:#fff;stroke:#d0d7de}.page{fill:#f6f8fa}.grid{stroke:#d0d7de;stroke-width:.5}
.mark{stroke:#cf222e;stroke-dasharray:4 3}.markText{fill:#cf222e}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.dim{fill:#9198a1}.card{fill:#161b22;stroke:#30363d}.page{fill:#0d1117}
.grid{stroke:#30363d}.mark{stroke:#ff7b72}.markText{fill:#ff7b72}}
</style>
`

const (
	step = 15 * time.Second
	lead = 90 * time.Second // before the rollout
)

// colors are readable on white and on black.
var colors = []string{"#e5534b", "#4184e4", "#3fb950", "#b083f0", "#daaa3f"}

// drawRollout writes fleet.svg: the panels of the dashboard over a rollout, by the
// dashboard's own queries.
func drawRollout(t *testing.T, base, path string, begin, end time.Time) {
	t.Helper()
	var dashboard struct{ Panels []panel }
	if err := json.Unmarshal([]byte(lab.Deployed(t, "grafana", "plegd-fleet.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	d := &drawing{t: t, base: base, panels: dashboard.Panels, begin: begin, end: end}
	d.WriteString(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 960 650" width="960">` + "\n" + style)
	d.WriteString(`<rect class="page" width="960" height="650"/>` + "\n")
	d.plot("Nodes by primary reason", 10, 180, false)
	d.plot("Nodes by runtime version", 200, 180, true)
	d.table("Groups by lift", 10, 400, column{"reason", 0}, column{"label", 125}, column{"value", 245}, column{"", 0})
	d.table("First nodes", 420, 310, column{"reason", 0}, column{"node", 130}, column{"", 0})
	d.table("Culprits that nodes share", 740, 210, column{"kind", 0}, column{"id", 60}, column{"", 0})
	d.WriteString("</svg>\n")
	if err := os.WriteFile(path, []byte(d.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// query returns the results of a panel and the name of each.
func (d *drawing) query(title string) (all []series, names []string) {
	d.t.Helper()
	i := slices.IndexFunc(d.panels, func(p panel) bool { return p.Title == title })
	if i < 0 {
		d.t.Fatalf("the dashboard has no panel %q", title)
	}
	target := d.panels[i].Targets[0]
	expr := strings.NewReplacer("$cluster", "test", "$job", "plegd").Replace(target.Expr)
	values := url.Values{"query": {expr}, "time": {strconv.FormatInt(d.end.Unix(), 10)}}
	path := "/api/v1/query?"
	if !target.Instant {
		path = "/api/v1/query_range?"
		values = url.Values{"query": {expr}, "step": {"15"},
			"start": {strconv.FormatInt(d.begin.Unix(), 10)}, "end": {strconv.FormatInt(d.end.Unix(), 10)}}
	}
	all = d.ask(path + values.Encode())
	label := regexp.MustCompile(`\{\{(\w+)\}\}`)
	for _, s := range all {
		names = append(names, label.ReplaceAllStringFunc(target.LegendFormat, func(m string) string { return s.Metric[m[2:len(m)-2]] }))
	}
	if len(all) == 0 {
		d.t.Errorf("the panel %q is empty", title)
	}
	return all, names
}

func (d *drawing) get(path string, to any) {
	d.t.Helper()
	answer, err := http.Get(d.base + path)
	if err != nil {
		d.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if err := json.NewDecoder(answer.Body).Decode(to); err != nil {
		d.t.Fatal(err)
	}
}

func (d *drawing) ask(path string) []series {
	d.t.Helper()
	var data struct{ Data struct{ Result []series } }
	d.get(path, &data)
	return data.Data.Result
}

func (d *drawing) text(x, y float64, class, anchor, text string) {
	fmt.Fprintf(d, `<text x="%.0f" y="%.0f" class="%s" text-anchor="%s">%s</text>`+"\n", x, y, class, anchor, html.EscapeString(text))
}

func (d *drawing) card(title string, x, y, w, h float64) {
	fmt.Fprintf(d, `<rect class="card" x="%.0f" y="%.0f" width="%.0f" height="%.0f" rx="6"/>`+"\n", x, y, w, h)
	d.text(x+12, y+22, "title", "start", title)
}

// grid returns a series' values at each step of the picture; 0: none.
func (d *drawing) grid(s series) []float64 {
	out := make([]float64, int(d.end.Sub(d.begin)/step)+1)
	for _, p := range s.Values {
		at, _ := p[0].(float64)
		text, _ := p[1].(string)
		if i := (int64(at) - d.begin.Unix()) / int64(step/time.Second); i >= 0 && int(i) < len(out) {
			out[i], _ = strconv.ParseFloat(text, 64)
		}
	}
	return out
}

// plot draws a panel over time: areas that add up, or lines on a logarithmic scale.
func (d *drawing) plot(title string, top, height float64, logarithmic bool) {
	const left, right = 60.0, 936.0
	d.card(title, 10, top, 940, height)
	all, names := d.query(title)
	order := make([]int, len(all)) // by name, the newest version first
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(names[b], names[a]) })
	n := len(d.grid(all[0]))
	sum, base := make([]float64, n), make([]float64, n)
	for _, s := range all {
		for i, v := range d.grid(s) {
			sum[i] += v
		}
	}
	limit, high, low := slices.Max(sum), top+40, top+height-26
	scale := func(v float64) float64 { return v / limit }
	ticks := []float64{0, math.Round(limit / 2), limit}
	if logarithmic {
		scale = func(v float64) float64 { return math.Log10(max(v, 1)) / math.Log10(limit*2) }
		ticks = []float64{1, 10, 100, 1000, limit}
	}
	x := func(i int) float64 { return left + (right-left)*float64(i)/float64(n-1) }
	y := func(v float64) float64 { return low - (low-high)*scale(v) }
	for _, v := range ticks {
		fmt.Fprintf(d, `<path class="grid" d="M%.0f %.0fH%.0f"/>`+"\n", left, y(v), right)
		d.text(left-8, y(v)+4, "dim", "end", strconv.FormatFloat(v, 'f', 0, 64))
	}
	for i := int(lead / step); i < n; i += int(2 * time.Minute / step) {
		d.text(x(i), low+17, "dim", "middle", fmt.Sprintf("%d min", (i-int(lead/step))/4))
	}
	legend := 260.0
	for k, i := range order {
		values, color := d.grid(all[i]), colors[k%len(colors)]
		var line, back []string
		for i, v := range values {
			if logarithmic && v > 0 {
				line = append(line, fmt.Sprintf("%.1f %.1f", x(i), y(v)))
			} else if !logarithmic {
				back = append(back, fmt.Sprintf("%.1f %.1f", x(i), y(base[i])))
				base[i] += v
				line = append(line, fmt.Sprintf("%.1f %.1f", x(i), y(base[i])))
			}
		}
		slices.Reverse(back)
		fill := "none"
		if !logarithmic {
			fill = color
		}
		fmt.Fprintf(d, `<path d="M%s" stroke="%s" stroke-width="2" fill="none"/><path d="M%s" fill="%s" fill-opacity=".5"/>`+"\n",
			strings.Join(line, "L"), color, strings.Join(append(line, back...), "L"), fill)
		fmt.Fprintf(d, `<rect x="%.0f" y="%.0f" width="10" height="10" fill="%s"/>`+"\n", legend, top+13, color)
		d.text(legend+16, top+22, "dim", "start", names[i])
		legend += 40 + 7*float64(len(names[i]))
	}
	d.mark(x, high, low)
}

// mark draws when the common cause is named, as the dashboard's annotation.
func (d *drawing) mark(x func(int) float64, high, low float64) {
	alerts := d.ask("/api/v1/query_range?" + url.Values{
		"query": {`ALERTS{alertname="PLEGFleetCommonCause", alertstate="firing"}`}, "step": {"15"},
		"start": {strconv.FormatInt(d.begin.Unix(), 10)}, "end": {strconv.FormatInt(d.end.Unix(), 10)},
	}.Encode())
	for _, a := range alerts {
		first := slices.IndexFunc(d.grid(a), func(v float64) bool { return v > 0 })
		fmt.Fprintf(d, `<path class="mark" d="M%.0f %.0fV%.0f"/>`+"\n", x(first), high-4, low)
		d.text(936, high-18, "markText", "end", "PLEGFleetCommonCause fires") // beside the legend
	}
}

// A column of a table is a label, or the value for "", which stands at the right.
type column struct {
	label string
	x     float64
}

// table draws what a panel shows at the end.
func (d *drawing) table(title string, left, width float64, columns ...column) {
	const top, rows = 390.0, 9
	d.card(title, left, top, width, 250)
	all, _ := d.query(title)
	for r, s := range all[:min(len(all), rows)] {
		for _, c := range columns {
			x, anchor, text := left+12+c.x, "start", s.Metric[c.label]
			if c.label == "" {
				x, anchor = left+width-12, "end"
				value, _ := s.Value[1].(string)
				v, _ := strconv.ParseFloat(value, 64)
				switch {
				case v > 1e12: // milliseconds, as Grafana wants a time
					text = time.UnixMilli(int64(v)).UTC().Format(time.TimeOnly)
				case v >= 10:
					text = strconv.FormatFloat(v, 'f', 0, 64)
				default:
					text = strconv.FormatFloat(v, 'f', 1, 64)
				}
			}
			d.text(x, top+48+22*float64(r), "dim", anchor, text)
		}
	}
}
