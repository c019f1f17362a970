package cri

import (
	"cmp"
	"context"
	"encoding/json"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/plain"
)

// The questions for images have no history and no metric.
const (
	opSandboxInfo = "podsandbox_info"
	opImageStatus = "image_status"
)

// SandboxImage returns the image that a sandbox was made from, "" where the runtime does not report it. containerd does:
// by the name that it was configured with since 2.0 (internal/cri/annotations, SandboxImageName), else as its store names
// it. A Status does not hold the name since 2.0.
func (c *Client) SandboxImage(ctx context.Context, sandbox *Entry) (string, error) {
	var m runtimeapi.PodSandboxStatusResponse
	req := &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sandbox.ID, Verbose: true}
	err := c.askBeside(ctx, opSandboxInfo, req, into(&m))
	if err != nil {
		return "", err
	}
	var info struct {
		Image       string `json:"image"`
		RuntimeSpec struct {
			Annotations struct {
				Configured string `json:"io.kubernetes.cri.podsandbox.image-name"`
			} `json:"annotations"`
		} `json:"runtimeSpec"`
	}
	if json.Unmarshal([]byte(m.GetInfo()["info"]), &info) != nil {
		return "", nil // another runtime's, which has another form or none
	}
	return plain.CutTo(cmp.Or(info.RuntimeSpec.Annotations.Configured, info.Image), maxMessage), nil
}

// HasImage reports whether an image is in the runtime's store.
func (c *Client) HasImage(ctx context.Context, name string) (bool, error) {
	var m runtimeapi.ImageStatusResponse
	err := c.askBeside(ctx, opImageStatus, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: name}}, into(&m))
	return m.GetImage() != nil, err
}
