package kubelet

import "time"

// Memory is what a Model remembers over a restart of plegd. Its times are those of this boot.
type Memory struct {
	State        State     `json:"state,omitzero"`
	Doubt        bool      `json:"doubt,omitzero"`
	Message      string    `json:"message,omitzero"`
	Rewritten    time.Time `json:"rewritten,omitzero"`
	HangEarliest time.Time `json:"hang_earliest,omitzero"`
	HangLatest   time.Time `json:"hang_latest,omitzero"`
	Released     time.Time `json:"released,omitzero"`
	Holding      bool      `json:"holding,omitzero"`
	Turned       time.Time `json:"turned,omitzero"`
	TurnedBefore time.Time `json:"turned_before,omitzero"`
	Started      time.Time `json:"started,omitzero"`
	Silence      time.Time `json:"silence,omitzero"`
	Back         time.Time `json:"back,omitzero"`
	Lost         time.Time `json:"lost,omitzero"`
	Cached       time.Time `json:"cached,omitzero"`
}

// Times returns the addresses of all times.
func (m *Memory) Times() []*time.Time {
	return []*time.Time{
		&m.Rewritten, &m.HangEarliest, &m.HangLatest, &m.Released, &m.Turned, &m.TurnedBefore, &m.Started, &m.Silence, &m.Back,
		&m.Lost, &m.Cached,
	}
}

// Memory returns what the model is to remember.
func (m *Model) Memory() Memory {
	return Memory{
		State:        m.state,
		Doubt:        m.doubt,
		Message:      m.written.text,
		Rewritten:    m.written.rewritten,
		HangEarliest: m.updates.hang.earliest,
		HangLatest:   m.updates.hang.latest,
		Released:     m.updates.released,
		Holding:      m.holding,
		Turned:       m.turned,
		TurnedBefore: m.turnedBefore,
		Started:      m.started,
		Silence:      m.silence,
		Back:         m.back,
		Lost:         m.lost,
		Cached:       m.cached,
	}
}

// Resume returns the model of the plegd before this one, which has ended a moment ago. Where a fault stood then, the
// calls that hang now hang for the same one: nothing is unobserved.
func Resume(memory Memory) Model {
	m := Model{
		state:        memory.State,
		doubt:        memory.Doubt,
		written:      message{text: memory.Message, rewritten: memory.Rewritten},
		holding:      memory.Holding,
		turned:       memory.Turned,
		turnedBefore: memory.TurnedBefore,
		resumed:      memory.State != Ready && memory.State != Unobserved,
		started:      memory.Started,
		silence:      memory.Silence,
		back:         memory.Back,
		lost:         memory.Lost,
		cached:       memory.Cached,
	}
	m.updates.hang = window{earliest: memory.HangEarliest, latest: memory.HangLatest}
	m.updates.released = memory.Released
	return m
}
