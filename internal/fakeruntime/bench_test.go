package fakeruntime_test

import (
	"fmt"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/fakeruntime"
)

// BenchmarkAnswer is what both lists cost with a client that receives the bytes
// and does not decode them: a bench of a client has the server beside it.
func BenchmarkAnswer(b *testing.B) {
	for _, pods := range []int{110, 5000} {
		b.Run(fmt.Sprint(pods), func(b *testing.B) {
			rt := start(b, fakeruntime.Options{})
			rt.FillPods(pods, 2)
			b.ReportAllocs()
			client := connect(b, rt, grpc.WithDefaultCallOptions(
				grpc.MaxCallRecvMsgSize(64<<20), grpc.ForceCodecV2(bytesCodec{encoding.GetCodecV2("proto")})))
			for b.Loop() {
				if _, err := client.ListPodSandbox(b.Context(), &runtimeapi.ListPodSandboxRequest{}); err != nil {
					b.Fatal(err)
				}
				if _, err := client.ListContainers(b.Context(), &runtimeapi.ListContainersRequest{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkChurn is one second of a busy node.
func BenchmarkChurn(b *testing.B) {
	rt := fakeruntime.New(fakeruntime.Options{})
	rt.FillPods(5000, 2)
	for b.Loop() {
		rt.Churn(0.6)
	}
}
