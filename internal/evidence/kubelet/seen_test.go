package kubelet

import "testing"

// TestKubeletSeenBefore: a kubelet that has answered before plegd restarted, and is
// refused since, is down and not unknown.
func TestKubeletSeenBefore(t *testing.T) {
	_, s := startKubelet(t, nil)
	url := s.URL
	s.Close()
	k := askKubelet(t, Options{HealthzURL: url, Seen: func() bool { return true }})
	if v := mustGather(t, k); v.OK || !v.Refused || !v.Seen {
		t.Errorf("%+v, want it refused", v)
	}
	wantErr(t, askKubelet(t, Options{HealthzURL: url}), "never answered")
}
