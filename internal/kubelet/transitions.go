package kubelet

import "slices"

// State is what the model knows of the Ready condition in the API.
type State string

// The states. Three of them are pending: the API shows another condition within a window.
const (
	// Unobserved: no call has been answered since plegd started, or only plegd cannot reach the runtime.
	Unobserved State = ""
	// Ready: the condition is True, and nothing points to a change.
	Ready State = "ready"
	// Falling: the condition turns False within a window, or may have.
	Falling State = "falling"
	// NotReady: the condition is certainly False.
	NotReady State = "not ready"
	// Unsettled: the condition may be either; an update within a window finds the rules holding.
	Unsettled State = "unsettled"
	// Silent: the node controller writes Unknown within a window.
	Silent State = "silent"
	// Unknown: the node controller has certainly written Unknown.
	Unknown State = "unknown"
)

// transition is one row of the table.
type transition struct {
	states      []State
	next        State
	observation string // takes it
	observed    func(*step) bool
}

// transitions are all changes of state. At each step the first row that matches is taken, until none does. What ends
// a state is the observation of the rows that leave it.
var transitions = []transition{
	{
		states: []State{Ready, Falling, NotReady, Unsettled, Silent, Unknown}, next: Unobserved,
		observation: "only plegd cannot reach the runtime", observed: (*step).unobserved,
	},
	{states: []State{Unobserved}, next: Falling, observation: "a rule fails, or will", observed: (*step).observedFailing},
	{
		states: []State{Unobserved}, next: Unsettled,
		observation: "calls are answered, and a rule may have failed before", observed: (*step).observedAfterDoubt,
	},
	{states: []State{Unobserved}, next: Ready, observation: "calls are answered and the rules hold", observed: (*step).observed},

	{states: []State{Ready, Falling}, next: Silent, observation: "the kubelet is silent for longer than a restart takes", observed: (*step).lost},
	{states: []State{Unsettled}, next: Silent, observation: "it is, and has no new connection to its API server", observed: (*step).disconnected},
	{states: []State{Silent, NotReady}, next: Unknown, observation: "the node controller's grace has passed", observed: (*step).graceOver},
	{states: []State{Silent}, next: Unsettled, observation: "the kubelet answers, after Unknown may have been written", observed: (*step).answersAfterDoubt},
	{states: []State{Silent}, next: Ready, observation: "the kubelet answers", observed: (*step).answers},
	{states: []State{Unknown}, next: Unsettled, observation: "the kubelet answers, and an update may have ended Unknown", observed: (*step).mayHaveReturned},

	{states: []State{Ready}, next: Falling, observation: "a rule fails, or will", observed: (*step).points},
	{states: []State{Unsettled}, next: Falling, observation: "a rule fails", observed: (*step).fails},
	{states: []State{Ready}, next: Unsettled, observation: "a hang has just ended, or a long pause", observed: (*step).undecided},
	{states: []State{Falling}, next: NotReady, observation: "an update has found the rules failing", observed: (*step).writtenNotReady},
	{states: []State{Falling}, next: Unsettled, observation: "the rules hold, and an update may have found them failing", observed: (*step).holdsAfterDoubt},
	{states: []State{Falling}, next: Ready, observation: "the rules hold", observed: (*step).pointsNowhere},
	{states: []State{NotReady}, next: Unsettled, observation: "the rules hold, and an update may have found that", observed: (*step).mayBeReady},
	{states: []State{Unsettled}, next: Ready, observation: "an update has found the rules holding", observed: (*step).settledReady},
}

// advance takes the transitions of one step.
func (m *Model) advance(s *step) {
	for range transitions { // a step passes through no state twice
		i := slices.IndexFunc(transitions, func(row transition) bool {
			return slices.Contains(row.states, m.state) && row.observed(s)
		})
		if i < 0 {
			return
		}
		m.state = transitions[i].next
		m.doubt = m.doubt && m.state != Ready
	}
}
