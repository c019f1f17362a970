package record

import (
	"fmt"
	"math"
	"regexp"
	"time"
)

// Limits of the comparison.
const (
	// ruleLimit is how far plegd's rules may be from the kubelet's sync loop.
	// plegd is sampled every 250 ms and the loop looks once a second.
	ruleLimit = 1500 * time.Millisecond
	// statusPhase is added to the limits where Status decides (docs/accuracy.md, Predictions): the kubelet
	// asks for it every 5 s (kubelet.StatusPeriod), at moments that nobody outside can know.
	statusPhase = 5 * time.Second
	// windowLimit is the widest window that plegd may predict (docs/accuracy.md, Predictions).
	windowLimit = 12500 * time.Millisecond
	// windowSlack is how far outside the predicted window a write may be: the API
	// records it when it arrives, and samples are 250 ms apart.
	windowSlack = 500 * time.Millisecond
	// insideShare is the share of the samples before the write whose window must hold it.
	insideShare = 0.99
	// unknownLimit is the width of a window beyond what nothing on the node shows.
	unknownLimit = 13 * time.Second
	// messageLimit is how far from the API's NotReady plegd's message is compared.
	messageLimit = 12500 * time.Millisecond
	// endKnown is by when plegd must know what a kubelet knows (docs/accuracy.md, Predictions: 2 s around
	// a change): it lists, asks Status and judges once a second. releaseKnown is the same of an update that
	// hung and was released: the model waits a second for both answers (releaseSettle in internal/kubelet),
	// the next judgement comes up to a second later, and the API records a write up to windowSlack late.
	endKnown     = 2 * time.Second
	releaseKnown = 2*time.Second + windowSlack
)

// Prediction is plegd's prediction at a time after the fault, in seconds since the fault.
type Prediction struct {
	After time.Duration
	// Rules is when the kubelet's rules fail, From and To bound the API's NotReady. nil: not predicted.
	Rules, From, To *float64
	// Failed is true when plegd said that the rules have failed, NotReady when it said that the API shows NotReady.
	Failed, NotReady bool
}

// Turn is a change of the Ready condition to False, and back.
type Turn struct {
	// NotReady and Ready are seconds since the fault. Ready is nil where it did not come back.
	NotReady float64
	Ready    *float64
	Message  string
}

// Comparison is what one run showed. Times are seconds since the fault, nil for what never happened.
type Comparison struct {
	Recording *Recording
	// Predictions were made 5, 10 and 20 s after the fault.
	Predictions [3]Prediction
	// RulesFailed is when plegd's rules failed, Skipped when the kubelet's sync loop first skipped its work.
	RulesFailed, Skipped *float64
	// API are the turns of the API's Ready condition, Plegd those that plegd predicted.
	API, Plegd []Turn
	// Inside is the share of the samples, from 5 s after the fault to the API's first
	// NotReady, whose window held it; -1 where there was none to compare.
	Inside float64
	// Widest is the widest window predicted in that time, in seconds.
	Widest float64
	// Message is "equal", "different" or "" where the API showed none.
	Message string
	// PlegdMessage is plegd's where it is different.
	PlegdMessage string
	// ReasonNamed is when the wanted reason was named, ReasonGone how long after the recovery it was gone.
	ReasonNamed, ReasonGone *float64
	// Problems are the acceptance rules that the run broke.
	Problems []string
}

// Compare compares plegd's predictions with the kubelet's behavior.
func Compare(r *Recording) *Comparison {
	c := &Comparison{Recording: r, Inside: -1}
	for i, after := range []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second} {
		c.Predictions[i] = r.prediction(after)
	}
	c.API = apiTurns(r)
	c.Plegd = plegdTurns(r)
	c.rules()
	c.window()
	c.certain()
	c.wantReady()
	c.messages()
	c.reason()
	return c
}

// Judge saves the recording in a directory, unless that is empty, logs the comparison and
// returns its problems, without those of a known deviation.
func (r *Recording) Judge(log interface{ Log(...any) }, dir string) []string {
	c := Compare(r)
	log.Log(r.Scenario, r.Runtime, c)
	if dir != "" {
		if err := r.Save(dir); err != nil {
			return append(c.Problems, err.Error())
		}
	}
	if r.Deviation != "" {
		log.Log("known deviation:", r.Deviation, c.Problems)
		return nil
	}
	return c.Problems
}

func (c *Comparison) problem(format string, args ...any) {
	c.Problems = append(c.Problems, fmt.Sprintf(format, args...))
}

// since returns the seconds from the fault to t.
func (r *Recording) since(t time.Time) float64 { return t.Sub(r.Fault).Seconds() }

func ptr(v float64) *float64 { return &v }

// prediction returns what the first sample said that is so long after the fault.
func (r *Recording) prediction(after time.Duration) Prediction {
	p := Prediction{After: after}
	for _, s := range r.Samples {
		if s.At.Before(r.Fault.Add(after)) {
			continue
		}
		at := r.since(s.At)
		p.Failed = !s.RulesOK
		if s.RulesFailIn != nil {
			p.Rules = ptr(at + *s.RulesFailIn)
		}
		if !s.NodeReady {
			p.NotReady = true
		} else if s.NotReadyIn != nil {
			p.From = ptr(at + *s.NotReadyIn)
			p.To = p.From
			if s.NotReadyInLatest != nil {
				p.To = ptr(at + *s.NotReadyInLatest)
			}
		}
		return p
	}
	return p
}

// apiTurns returns when the API's condition turned False from the fault on.
func apiTurns(r *Recording) []Turn {
	t := turns{r: r, ready: true}
	for _, w := range r.Writes {
		t.see(w.At, w.Ready, w.Message)
	}
	return t.all
}

// plegdTurns returns when plegd said that the API's condition turned False.
func plegdTurns(r *Recording) []Turn {
	t := turns{r: r, ready: true}
	for _, s := range r.Samples {
		t.see(s.At, s.NodeReady, s.Message)
	}
	return t.all
}

// turns collects when a condition turned False and True again. The node was Ready
// when the fault began: earlier changes do not count.
type turns struct {
	r     *Recording
	ready bool
	all   []Turn
}

func (t *turns) see(at time.Time, ready bool, message string) {
	if at.Before(t.r.Fault) || ready == t.ready {
		return
	}
	if t.ready = ready; ready {
		t.all[len(t.all)-1].Ready = ptr(t.r.since(at))
	} else {
		t.all = append(t.all, Turn{NotReady: t.r.since(at), Message: message})
	}
}

// rules compares when plegd's rules failed with the kubelet's sync loop.
func (c *Comparison) rules() {
	r := c.Recording
	for _, s := range r.Samples {
		if !s.At.Before(r.Fault) && !s.RulesOK {
			c.RulesFailed = ptr(r.since(s.At))
			break
		}
	}
	for _, s := range r.Skips {
		if !s.At.Before(r.Fault) {
			c.Skipped = ptr(r.since(s.At))
			break
		}
	}
	switch {
	case r.LoopSilent:
	case c.RulesFailed == nil && c.Skipped != nil && c.ruleWasDue(*c.Skipped):
		// The fault ended between the kubelet's moment and plegd's.
	case c.RulesFailed == nil && c.Skipped != nil:
		c.problem("the sync loop skipped its work after %.1f s, plegd's rules held", *c.Skipped)
	case c.RulesFailed != nil && c.Skipped == nil && r.phase() > 0 && r.since(r.Recovery) < *c.RulesFailed+r.phase().Seconds():
		// The fault ended between plegd's moment and the kubelet's.
	case c.RulesFailed != nil && c.Skipped == nil:
		c.problem("plegd's rules failed after %.1f s, the sync loop skipped nothing", *c.RulesFailed)
	case c.RulesFailed != nil:
		limit := (ruleLimit + r.phase()).Seconds()
		if d := *c.RulesFailed - *c.Skipped; d > limit || d < -limit {
			c.problem("plegd's rules failed %+.1f s from the sync loop", d)
		}
	}
}

// ruleWasDue reports whether plegd, when it last spoke before a moment, predicted
// that the rules fail at about that moment.
func (c *Comparison) ruleWasDue(moment float64) bool {
	due := false
	limit := (ruleLimit + c.Recording.phase()).Seconds()
	for _, s := range c.Recording.Samples {
		at := c.Recording.since(s.At)
		if at > moment {
			break
		}
		due = s.RulesFailIn != nil && math.Abs(at+*s.RulesFailIn-moment) <= limit
	}
	return due
}

// window checks the predicted windows against the API's first NotReady, where that came while the fault stood.
func (c *Comparison) window() {
	r := c.Recording
	if len(c.API) == 0 || r.since(r.Recovery)-windowSlack.Seconds() < c.API[0].NotReady || c.released(c.API[0]) {
		return
	}
	turned := c.API[0].NotReady
	inside, all := 0, 0
	for _, s := range r.Samples {
		at := r.since(s.At)
		if at < max(5, r.PredictedAfter.Seconds()) || at >= turned || !s.NodeReady {
			continue
		}
		all++
		if s.NotReadyIn == nil {
			continue
		}
		from, to := at+*s.NotReadyIn, at+*s.NotReadyIn
		if s.NotReadyInLatest != nil {
			to = at + *s.NotReadyInLatest
		}
		c.Widest = max(c.Widest, to-from)
		if slack := (windowSlack + r.phase()).Seconds(); turned >= from-slack && turned <= to+slack {
			inside++
		}
	}
	if all == 0 {
		return
	}
	c.Inside = float64(inside) / float64(all)
	if c.Inside < insideShare {
		c.problem("NotReady at %.1f s is inside the window of %.0f %% of the predictions", turned, 100*c.Inside)
	}
	if limit := r.windowLimit(); c.Widest > limit.Seconds() {
		c.problem("a predicted window is %.1f s wide", c.Widest)
	}
}

// windowLimit is the widest window that plegd may predict.
func (r *Recording) windowLimit() time.Duration {
	if r.Unknown > 0 {
		return unknownLimit + r.Unknown
	}
	return windowLimit
}

// certain checks that plegd states nothing as certain while the API shows the opposite:
// NotReady never, and Ready without a window no longer than it takes to see a fault.
func (c *Comparison) certain() {
	r := c.Recording
	var falseNotReady, falseReady []float64
	for _, s := range r.Samples {
		at := r.since(s.At)
		open := s.NotReadyIn != nil || s.ReadyIn != nil
		switch {
		case at < 0 || s.State == "starting":
		case !s.NodeReady && c.shows(true, at-endKnown.Seconds(), at+windowSlack.Seconds()):
			falseNotReady = append(falseNotReady, at)
		case s.NodeReady && !open && c.shows(false, at-releaseKnown.Seconds()-r.phase().Seconds(), at):
			falseReady = append(falseReady, at)
		}
	}
	c.never(falseNotReady, "NotReady", "Ready")
	c.never(falseReady, "Ready", "NotReady")
}

// never reports the moments at which plegd said one thing and the API another.
func (c *Comparison) never(moments []float64, plegd, api string) {
	if n := len(moments); n > 0 {
		c.problem("plegd was certain of %s while the API showed %s: %d samples from %.1f to %.1f s", plegd, api, n, moments[0], moments[n-1])
	}
}

// shows reports whether the API showed the condition all the time between two moments.
func (c *Comparison) shows(ready bool, from, to float64) bool {
	notReady := 0.0 // for how long in that time
	for _, turn := range c.API {
		end := to
		if turn.Ready != nil {
			end = min(to, *turn.Ready)
		}
		notReady += max(0, end-max(from, turn.NotReady))
	}
	if ready {
		return notReady == 0
	}
	return notReady >= to-from
}

// wantReady checks that no countdown is shown where plegd must know that the node stays Ready.
func (c *Comparison) wantReady() {
	r := c.Recording
	for _, s := range r.Samples {
		if r.WantReady && s.NotReadyIn != nil && r.since(s.At) > 10 {
			c.problem("plegd counted down to NotReady at %.1f s, and knew that the node stays Ready", r.since(s.At))
			return
		}
	}
}

// phase is how far the kubelet's own clock may be from plegd's in this scenario.
func (r *Recording) phase() time.Duration {
	if r.StatusRule {
		return statusPhase
	}
	return 0
}

// released reports whether plegd said of a turn to NotReady that it may be shown, and in which window it ends. Where
// a hang ends before Version's timeout, which of two answers the kubelet gets first decides whether there is one:
// until then plegd's window is that of a hang that lasts.
func (c *Comparison) released(a Turn) bool {
	if a.Ready == nil {
		return false
	}
	inside, all := 0, 0
	for _, s := range c.Recording.Samples {
		at := c.Recording.since(s.At)
		if at < a.NotReady+releaseKnown.Seconds() || at >= *a.Ready-windowSlack.Seconds() {
			continue
		}
		all++
		if slack := windowSlack.Seconds(); s.ReadyIn != nil && s.ReadyInLatest != nil && *a.Ready >= at+*s.ReadyIn-slack && *a.Ready <= at+*s.ReadyInLatest+slack {
			inside++
		}
	}
	return all > 0 && float64(inside)/float64(all) >= insideShare
}

// elapsed is the part of a message that depends on the moment.
var elapsed = regexp.MustCompile(`last seen active [0-9a-zµ.]+ ago`)

// SameMessage reports whether two messages are equal but for the elapsed time.
func SameMessage(a, b string) bool {
	const moment = "last seen active long ago"
	return elapsed.ReplaceAllString(a, moment) == elapsed.ReplaceAllString(b, moment)
}

// messages compares the message of the API's first NotReady with the message that plegd
// reported or predicted around that time.
func (c *Comparison) messages() {
	if len(c.API) == 0 {
		return
	}
	r, turn := c.Recording, c.API[0]
	c.Message = "different"
	for _, s := range r.Samples {
		at := r.since(s.At)
		if math.Abs(at-turn.NotReady) > (messageLimit+r.phase()).Seconds() || s.Message == "" {
			continue
		}
		c.PlegdMessage = s.Message
		if SameMessage(s.Message, turn.Message) {
			c.Message, c.PlegdMessage = "equal", ""
			return
		}
	}
	c.problem("the API's message is %q, plegd's %q", turn.Message, c.PlegdMessage)
}

// reason checks the reason that the scenario wants.
func (c *Comparison) reason() {
	r := c.Recording
	if r.WantReason == "" {
		return
	}
	for _, s := range r.Samples {
		named := s.Reason == r.WantReason
		if !s.At.Before(r.Fault) && named && c.ReasonNamed == nil {
			c.ReasonNamed = ptr(r.since(s.At))
		}
		if named && s.At.After(r.Recovery) {
			c.ReasonGone = ptr(s.At.Sub(r.Recovery).Seconds())
		}
	}
	if r.WantMetrics && !r.MetricsRead {
		c.problem("the kubelet's own metrics were never read")
	}
	switch {
	case c.ReasonNamed == nil:
		c.problem("%s was never the primary reason", r.WantReason)
	case *c.ReasonNamed > r.ReasonWithin.Seconds():
		c.problem("%s was named after %.1f s, later than %s", r.WantReason, *c.ReasonNamed, r.ReasonWithin)
	case c.ReasonGone != nil && *c.ReasonGone > r.GoneWithin.Seconds():
		c.problem("%s stood until %.1f s after the recovery, longer than %s", r.WantReason, *c.ReasonGone, r.GoneWithin)
	}
}
