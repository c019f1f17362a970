package evidence

import (
	"context"
	"errors"
	"time"

	"github.com/plegd/plegd/internal/evidence/kubelet"
	"github.com/plegd/plegd/internal/health"
)

// noKubelet turns a node without a kubelet into a source without data.
func noKubelet[T any](v *T, err error) (*T, error) {
	if errors.Is(err, kubelet.ErrNone) {
		return nil, ErrNoData
	}
	return v, err
}

// newKubelet returns the source of the kubelet's healthz and metrics. A kubelet that
// stops is reported within 15 s: 4 s until the next sample, and 10 s in which it must
// have failed. The error is of a wrong option.
func newKubelet(opts kubelet.Options) (*Watch[health.Kubelet], error) {
	k, err := kubelet.New(opts)
	if err != nil {
		return nil, err
	}
	return NewWatch(Spec[health.Kubelet]{
		Name: "kubelet", Every: 4, Timeout: k.Limit(), Again: func(v *health.Kubelet) bool { return !v.OK },
		Gather: func(ctx context.Context) (*health.Kubelet, error) { return noKubelet(k.Sample(ctx)) },
		Store:  func(e *health.Evidence, v *health.Kubelet) { e.Kubelet = v },
	}), nil
}

// newKubeletProcess returns the source of the kubelet's process and settings.
func newKubeletProcess(p *kubelet.Process) *Watch[health.KubeletProcess] {
	return NewWatch(Spec[health.KubeletProcess]{
		Name: "kubelet_process", Every: 2, Calm: 5, Timeout: 2 * time.Second,
		Gather: func(ctx context.Context) (*health.KubeletProcess, error) { return noKubelet(p.Sample(ctx)) },
		Store:  func(e *health.Evidence, v *health.KubeletProcess) { e.KubeletProcess = v },
	})
}
