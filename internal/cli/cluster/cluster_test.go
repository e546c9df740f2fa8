package cluster

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/cli/frame"
)

// TestPodWithIPv6 asserts that the address of an API server may be an IPv6 address.
func TestPodWithIPv6(t *testing.T) {
	mount := t.TempDir()
	flags := Flags{Namespace: "ci", Std: frame.IO{Mount: mount, Env: func(name string) string {
		return map[string]string{"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}[name]
	}}}
	access, _, err := flags.podAccess()
	if err != nil || access.Host != "https://"+net.JoinHostPort("fd00::1", "443") || access.BearerTokenFile != filepath.Join(mount, "token") {
		t.Errorf("%+v, %v", access, err)
	}
}
