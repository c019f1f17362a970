package main

import (
	"context"

	"github.com/plegd/plegd/internal/fakeruntime"
)

// runtimeName is the child that is the runtime.
const runtimeName = "runtime"

// startRuntime serves a fake runtime of the size given. With churn above 0, that
// fraction of its pods changes before each relist.
func startRuntime(socket string, pods, containers int, churn float64) (*fakeruntime.Runtime, error) {
	rt := fakeruntime.New(fakeruntime.Options{Seed: 1})
	rt.FillPods(pods, containers)
	if churn > 0 {
		for range containers { // each name has its dead container already
			rt.Churn(1)
		}
		rt.SetHook("ListPodSandbox", func(context.Context, any) error {
			rt.Churn(churn)
			return nil
		})
	}
	return rt, rt.Listen(socket)
}
