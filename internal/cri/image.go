package cri

import (
	"cmp"
	"context"
	"encoding/json"
	"path"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/plain"
)

// The questions for images have no history and no metric.
const (
	opSandboxInfo = "podsandbox_info"
	opImageStatus = "image_status"
	opStatusInfo  = "status_info"
)

// SandboxImage returns the image that a sandbox was made from, "" where the runtime does not report it. containerd does:
// by the name that it was configured with since 2.0 (internal/cri/annotations, SandboxImageName), else as its store names
// it. A Status does not hold the name since 2.0.
func (c *Client) SandboxImage(ctx context.Context, sandbox *Entry) (string, error) {
	info, err := c.sandboxInfo(ctx, sandbox)
	return plain.CutTo(cmp.Or(info.RuntimeSpec.Annotations.Configured, info.Image), maxMessage), err
}

// NetworkOf returns the path of the network namespace that was made for a sandbox, as the runtime's process sees it; "" for
// one on the node's network, and where the runtime does not report it.
func (c *Client) NetworkOf(ctx context.Context, sandbox *Entry) (string, error) {
	info, err := c.sandboxInfo(ctx, sandbox)
	for _, n := range info.RuntimeSpec.Linux.Namespaces {
		if n.Type == "network" {
			return plain.CutTo(n.Path, maxMessage), err
		}
	}
	return "", err
}

// sandboxInfo is what a runtime reports of a sandbox beside its status; zero for one that has another form or none.
type sandboxInfo struct {
	Image       string `json:"image"`
	RuntimeSpec struct {
		Annotations struct {
			Configured string `json:"io.kubernetes.cri.podsandbox.image-name"`
		} `json:"annotations"`
		Linux struct {
			Namespaces []struct {
				Type string `json:"type"`
				Path string `json:"path"`
			} `json:"namespaces"`
		} `json:"linux"`
	} `json:"runtimeSpec"`
}

func (c *Client) sandboxInfo(ctx context.Context, sandbox *Entry) (info sandboxInfo, err error) {
	var m runtimeapi.PodSandboxStatusResponse
	req := &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sandbox.ID, Verbose: true}
	err = c.askBeside(ctx, opSandboxInfo, req, into(&m))
	if err != nil || json.Unmarshal([]byte(m.GetInfo()["info"]), &info) != nil {
		return sandboxInfo{}, err
	}
	return info, nil
}

// NetworkPlugins returns where the runtime finds its network plugins: for each the paths, in the runtime's mounts, that it
// tries in turn. They are none where it does not report it; containerd does.
func (c *Client) NetworkPlugins(ctx context.Context) (places [][]string, err error) {
	var m runtimeapi.StatusResponse
	err = c.askBeside(ctx, opStatusInfo, &runtimeapi.StatusRequest{Verbose: true}, into(&m))
	var found networkConfig
	if err != nil || json.Unmarshal([]byte(m.GetInfo()["cniconfig"]), &found) != nil {
		return nil, err
	}
	for _, network := range found.Networks {
		for _, plugin := range network.Config.Plugins {
			places = append(places, found.placesOf(plugin.Network.Type))
		}
	}
	return places, nil
}

// networkConfig is what containerd reports of its networks (go-cni, ConfigResult).
type networkConfig struct {
	PluginDirs []string
	Networks   []struct {
		Config struct {
			Plugins []struct {
				Network struct {
					Type string `json:"type"`
				}
			}
		}
	}
}

// placesOf returns where a plugin is looked for, none for what is no name of a file.
func (n *networkConfig) placesOf(plugin string) (places []string) {
	for _, dir := range n.PluginDirs {
		if path.IsAbs(dir) && path.Base(plugin) == plugin {
			places = append(places, path.Join(dir, plugin))
		}
	}
	return places
}

// HasImage reports whether an image is in the runtime's store.
func (c *Client) HasImage(ctx context.Context, name string) (bool, error) {
	var m runtimeapi.ImageStatusResponse
	err := c.askBeside(ctx, opImageStatus, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: name}}, into(&m))
	return m.GetImage() != nil, err
}
