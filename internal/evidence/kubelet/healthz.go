package kubelet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/plain"
)

// followProcess samples a kubelet whose healthz is turned off: its process is all that shows.
func (k *Client) followProcess(process *facts.KubeletProcess, known bool, out *facts.Kubelet) error {
	switch {
	case process != nil:
		k.opts.Seen = true
		k.answeredAt = out.At
		return nil
	case !known:
		return errors.New("its healthz is turned off (healthzPort 0), and its process cannot be looked for")
	}
	out.OK = false
	out.Refused = true
	out.Detail = "its process has ended; its healthz is turned off (healthzPort 0)"
	return nil
}

// sampleHealthz asks the kubelet's healthz.
func (k *Client) sampleHealthz(ctx context.Context, process *facts.KubeletProcess, known bool, out *facts.Kubelet) error {
	err := k.readHealthz(ctx, out)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errNeverAnswered) && process == nil && known:
		return ErrNone
	case errors.Is(err, errNeverAnswered) && k.silentForLong(process):
		out.OK = false
		out.Detail = "connection refused: it has not begun to listen"
		return nil
	}
	return fmt.Errorf("asking %s: %w", k.opts.HealthzURL, err)
}

// listensAfter is how long after its start a kubelet listens at the latest where nothing
// holds it up; measured 1.4 to 6 s.
const listensAfter = 30 * time.Second

// silentForLong reports whether a kubelet should listen at the usual place by now.
func (k *Client) silentForLong(process *facts.KubeletProcess) bool {
	usual := k.opts.HealthzURL == DefaultHealthz && process != nil && process.HealthzPort == nil
	return usual && time.Since(process.Started) > listensAfter
}

// readHealthz asks the kubelet's healthz. The error says why its state is not known.
func (k *Client) readHealthz(ctx context.Context, out *facts.Kubelet) error {
	resp, err := k.healthz.get(ctx)
	if err != nil {
		out.Refused = errors.Is(err, syscall.ECONNREFUSED)
		silent, why := k.explain(err)
		switch {
		case out.Refused && !k.opts.Seen:
			return errNeverAnswered
		case !silent || !k.opts.Seen:
			return why
		}
		out.OK = false
		out.Detail = why.Error()
		return nil
	}
	defer resp.Body.Close()
	// A body that drips or breaks off is as good as its beginning.
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxHealthz))
	if err := statusError(resp); err != nil {
		if resp.StatusCode < http.StatusInternalServerError {
			return err
		}
		out.OK = false
		out.Detail = failingChecks(resp.Status, string(body))
	}
	k.opts.Seen = true
	k.answeredAt = out.At
	return nil
}

// maxHealthz bounds an answer of healthz, in bytes.
const maxHealthz = 16 << 10

var errNeverAnswered = errors.New("connection refused, and it has never answered: " +
	"start the kubelet, or say in --kubelet-healthz-url where its healthz is")

var failingCheck = regexp.MustCompile(`(?m)^\s*\[-\](.*?)(: reason withheld)?\s*$`)

// failingChecks returns the checks that a healthz answer names, its lines with [-]; where
// there are none, its first line.
func failingChecks(status, body string) string {
	var failing []string
	for _, check := range failingCheck.FindAllStringSubmatch(body, -1) {
		failing = append(failing, check[1])
	}
	first, _, _ := strings.Cut(strings.TrimSpace(body), "\n")
	return plain.Cut(cmp.Or(strings.Join(failing, ", "), strings.TrimSuffix(status+": "+first, ": ")))
}
