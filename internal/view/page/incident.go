package page

import (
	"net/http"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/internal/view"
)

// incidentData is what the template of an incident sees.
type incidentData struct {
	*incident.Incident
	frame
	Chained *health.Snapshot
	// Outcome, Lasted, When and NotReady are the incident's head in words; TimeLeft is the
	// present countdown while it is open.
	Outcome, Lasted, When, NotReady, TimeLeft string
	Meaning                                   string
	Plot                                      *view.Plot
	Ending, Facts                             []string
	StepParts, FollowUp                       [][]stepPart
	ReasonRows                                []reasonRow
	Moments                                   []momentRow
	JSONPath                                  string
}

type reasonRow struct{ ID, Severity, Since, Until, Active, Primary string }

// momentRow is one moment of the timeline.
type momentRow struct {
	At, After, State, Reason, Forecast string
	Evidence                           []string
	Also                               []health.Active
}

// ServeIncident writes the page of one incident. now is the present snapshot, for the
// countdown of an incident that is open.
func (p *Page) ServeIncident(w http.ResponseWriter, r *http.Request, one *incident.Incident, now *health.Snapshot) {
	data := incidentData{
		Incident: one, frame: p.frame(r, now), Chained: view.Chained(one),
		Outcome: view.Outcome(&one.Summary), NotReady: view.NotReadyFor(one), Plot: view.IncidentPlot(one), Ending: view.Ending(one), FollowUp: stepsParts(view.FollowUp(one)),
		JSONPath: view.PathIncidents + "/" + one.ID,
	}
	data.Title = one.Reason
	if one.Closed != nil {
		data.When = "from " + one.Opened.UTC().Format(view.WallTime) + " to " + one.Closed.UTC().Format(time.TimeOnly)
		data.Refresh = 0 // it does not change any more
	} else {
		data.When, data.TimeLeft = "since "+one.Opened.UTC().Format(view.WallTime), view.TimeLeft(now)
	}
	data.Lasted = view.Float(one.Duration)
	clock := func(seconds float64) string { return one.At(seconds).UTC().Format(time.TimeOnly) }
	for _, reason := range one.Reasons {
		data.ReasonRows = append(data.ReasonRows, reasonRow{
			view.Say(reason.ID), view.Say(string(reason.Severity)), clock(reason.First), clock(reason.Last), view.Float(reason.Active), view.Float(reason.Primary),
		})
	}
	for i := range one.Timeline {
		m := &one.Timeline[i]
		if m.Snapshot == nil {
			continue
		}
		row := momentRow{At: clock(m.Offset), After: view.Float(m.Offset), State: view.Say(string(m.Snapshot.State)), Reason: view.Say(m.Snapshot.Reason), Forecast: view.Forecast(m.Snapshot)}
		primary, others := view.SplitReasons(&m.Snapshot.Verdict)
		if row.Also = others; primary != nil {
			row.Evidence = primary.Evidence
		}
		data.Moments = append(data.Moments, row)
	}
	if s := view.Explaining(one); s != nil {
		data.Meaning, _ = view.Runbook(s.Facts.Runtime, one.Reason)
		data.StepParts, data.Facts = stepsParts(s.Steps), view.MomentFacts(s)
	}
	p.write(w, http.StatusOK, "incident.html", &data)
}

// stepsParts splits steps into words and commands.
func stepsParts(steps []string) (out [][]stepPart) {
	for _, step := range steps {
		out = append(out, stepParts(view.Say(strings.TrimSpace(step))))
	}
	return out
}
