//go:build e2e

package lab

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Inbox is a webhook of Alertmanager's that stores its notifications. The path is the receiver.
type Inbox struct {
	mu     sync.Mutex
	alerts []Notification
}

// Notification is one alert of a message.
type Notification struct {
	At                  time.Time `json:"-"`
	Receiver            string    `json:"-"`
	Status              string
	Labels, Annotations map[string]string
}

// String is the receiver, the status, the alert, its node and its reason; the last two where the alert has them.
func (a *Notification) String() string {
	words := []string{a.Receiver, a.Status, a.Labels["alertname"], a.Labels["node"], a.Labels["reason"]}
	return strings.Join(slices.DeleteFunc(words, func(s string) bool { return s == "" }), " ")
}

func (i *Inbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var message struct{ Alerts []Notification }
	if err := json.NewDecoder(r.Body).Decode(&message); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		message.Alerts = []Notification{{Status: "broken: " + err.Error()}}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, a := range message.Alerts {
		a.At, a.Receiver = time.Now(), strings.Trim(r.URL.Path, "/")
		i.alerts = append(i.alerts, a)
	}
}

// All returns the notifications, the oldest first.
func (i *Inbox) All() []Notification {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.alerts)
}

// Await waits until an alert has been sent that reads so, and returns the first.
func (i *Inbox) Await(t testing.TB, limit time.Duration, want string) Notification {
	t.Helper()
	var found Notification
	Eventually(t, limit, "Alertmanager sends: "+want, func() error {
		var seen []string
		for _, a := range i.All() {
			if a.String() == want {
				found = a
				return nil
			}
			seen = append(seen, a.String())
		}
		slices.Sort(seen)
		return fmt.Errorf("it has sent %q", slices.Compact(seen))
	})
	return found
}
