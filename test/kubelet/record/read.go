package record

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"time"
)

// Ask asks the plegd at an address for its status.
func Ask(client *http.Client, base string) (Sample, error) {
	answer, err := client.Get(base + "/api/v1/status")
	if err != nil {
		return Sample{}, err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return Sample{}, fmt.Errorf("%s: %s", base, answer.Status)
	}
	var s struct {
		Now     time.Time `json:"at"`
		State   string    `json:"state"`
		Reason  string    `json:"reason"`
		Reasons []struct {
			ID string `json:"id"`
		} `json:"reasons"`
		KubeletMessage   string   `json:"kubelet_message"`
		NotReadyIn       *float64 `json:"not_ready_in_seconds"`
		NotReadyInLatest *float64 `json:"not_ready_in_latest_seconds"`
		Kubelet          struct {
			RulesOK       bool     `json:"rules_ok"`
			RulesFailIn   *float64 `json:"rules_fail_in_seconds"`
			NodeReady     bool     `json:"node_ready"`
			ReadyIn       *float64 `json:"ready_in_seconds"`
			ReadyInLatest *float64 `json:"ready_in_latest_seconds"`
		} `json:"kubelet"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&s); err != nil {
		return Sample{}, err
	}
	out := Sample{
		At: s.Now, State: s.State, Reason: s.Reason, Message: s.KubeletMessage,
		RulesOK: s.Kubelet.RulesOK, RulesFailIn: s.Kubelet.RulesFailIn, NodeReady: s.Kubelet.NodeReady,
		NotReadyIn: s.NotReadyIn, NotReadyInLatest: s.NotReadyInLatest, ReadyIn: s.Kubelet.ReadyIn, ReadyInLatest: s.Kubelet.ReadyInLatest,
	}
	for _, r := range s.Reasons {
		out.Reasons = append(out.Reasons, r.ID)
	}
	return out, nil
}

// skipLine is the kubelet's log line of a sync loop that does not work, as in
// I1122 05:01:02.123456   123 kubelet.go:2400] "Skipping pod synchronization" err="..."
var skipLine = regexp.MustCompile(`^[IEW](\d{4} \d\d:\d\d:\d\d\.\d+) .*"Skipping pod synchronization" err="(.*)"$`)

// ReadSkips reads the skips of a kubelet's log. Its lines have no year: it is that of the date.
func ReadSkips(path string, date time.Time) ([]Skip, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var skips []Skip
	scanner := bufio.NewScanner(f)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		m := skipLine.FindStringSubmatch(scanner.Text())
		if m == nil {
			continue
		}
		at, err := time.ParseInLocation("2006 0102 15:04:05.000000", fmt.Sprintf("%d %s", date.Local().Year(), m[1]), time.Local)
		if err != nil {
			return nil, err
		}
		skips = append(skips, Skip{At: at, Error: strings.ReplaceAll(m[2], `\"`, `"`)})
	}
	return skips, scanner.Err()
}
