package local

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/lanyard-dev/lanyard/internal/must"
)

// server is a typical Deployment of a chart, its Service, and a second Service that selects other
// pods.
const server = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: lanyard-server, namespace: lanyard-system}
spec:
  template:
    metadata: {labels: {app: server}}
    spec:
      serviceAccountName: server
      containers:
        - name: server
          command: [/usr/bin/lanyard-server, serve]
          args:
            - --listen=:8443
            - --health=:8081
            - --public-url=https://server.lanyard-system.svc.cluster.local./v1
            - --other-url=https://other.lanyard-system.svc/v1
            - --cert=/tls/tls.crt
            - --config=/tls-config
            - --verbose
          env: [{name: CACHE, value: /cache/objects}, {name: NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}]
          ports: [{name: https, containerPort: 8443}, {name: health, containerPort: 8081}]
          readinessProbe: {httpGet: {path: /readyz, port: health, scheme: HTTPS}}
          volumeMounts:
            - {name: tls, mountPath: /tls}
            - {name: config, mountPath: /tls-config}
            - {name: cache, mountPath: /cache, subPath: mine}
      volumes:
        - {name: tls, secret: {secretName: server-tls}}
        - {name: config, configMap: {name: server-config}}
        - {name: cache, emptyDir: {}}
---
apiVersion: v1
kind: Service
metadata: {name: server, namespace: lanyard-system}
spec: {selector: {app: server}, ports: [{port: 443, targetPort: https}]}
---
apiVersion: v1
kind: Service
metadata: {name: other, namespace: lanyard-system}
spec: {selector: {app: other}, ports: [{port: 443, targetPort: https}]}
`

// chartOf reads manifests as the objects of a chart.
func chartOf(t *testing.T, manifests string) rendered {
	t.Helper()
	objects, err := parseManifest("chart.yaml", []byte(manifests))
	must.Succeed(t, err)
	var r rendered
	for _, o := range objects {
		must.Succeed(t, r.add(o.Unstructured))
	}
	return r
}

// TestDeployment prepares the program of a Deployment that is not Lanyard's. In the program's
// arguments and variables, ports and Service hosts must become local addresses. Paths in volumes
// must become paths in local folders.
func TestDeployment(t *testing.T) {
	chart := chartOf(t, server)
	w := chart.workloads[0]
	if w.Workload != (Workload{Name: "lanyard-server", Program: "lanyard-server"}) {
		t.Errorf("is %+v", w.Workload)
	}
	dir := t.TempDir()
	volumes := filepath.Join(dir, "volumes")
	cluster := &Cluster{typed: fake.NewClientset(
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: "server-tls"}, Data: map[string][]byte{"tls.crt": []byte("certificate")}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: "server-config"}, Data: map[string]string{"a": "text"}},
	)}
	p := &Program{}
	line, err := p.prepare(t.Context(), cluster, w, chart.servicesOf(w), dir)
	must.Succeed(t, err)
	want := []string{
		"serve", "--listen=" + p.layout.ports["https"], "--health=" + p.layout.ports["health"],
		"--public-url=https://" + p.layout.ports["https"] + "/v1", "--other-url=https://other.lanyard-system.svc/v1",
		"--cert=" + filepath.Join(volumes, "tls", "tls.crt"), "--config=" + filepath.Join(volumes, "config"), "--verbose",
	}
	if !slices.Equal(line.args, want) {
		t.Errorf("arguments are %q\nwant %q", line.args, want)
	}
	if want := []string{"CACHE=" + filepath.Join(volumes, "cache", "mine", "objects"), "NAMESPACE=" + Namespace}; !slices.Equal(line.env, want) {
		t.Errorf("environment is %q, want %q", line.env, want)
	}
	if want := "https://" + p.layout.ports["health"] + "/readyz"; p.ready != want {
		t.Errorf("is ready at %s, want %s", p.ready, want)
	}
	if got := p.URL("https"); !strings.HasPrefix(got, "http://127.0.0.1:") || p.URL("none") != "" {
		t.Errorf("listens at %q and %q", got, p.URL("none"))
	}
	if got := p.Ports(); !slices.Equal(got, []string{"health", "https"}) {
		t.Errorf("has the ports %q", got)
	}
	if read(t, filepath.Join(p.Folder("tls"), "tls.crt")) != "certificate" || read(t, filepath.Join(p.Folder("config"), "a")) != "text" {
		t.Error("volumes have other files than in the cluster")
	}
	if info, err := os.Stat(filepath.Join(p.Folder("cache"), "mine")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the volume's folder: %v, %v", info, err)
	}
}

// TestDeploymentRefused asserts an error for each container that cannot be started on this machine.
func TestDeploymentRefused(t *testing.T) {
	for name, tc := range map[string]struct{ replace, by, want string }{
		"a port that nobody names":   {"            - --listen=:8443\n", "", "port https as :8443"},
		"a volume that nobody names": {"            - --cert=/tls/tls.crt\n", "", "volume tls as /tls,"},
		"a variable in an argument":  {"--verbose", "--name=$(NAMESPACE)", "needs a kubelet"},
		"a variable from elsewhere":  {"fieldRef: {fieldPath: metadata.namespace}", "fieldRef: {fieldPath: status.hostIP}", "NAMESPACE"},
		"no probe":                   {"readinessProbe: {httpGet: {path: /readyz, port: health, scheme: HTTPS}}", "", "readinessProbe"},
		"a probe of another port":    {"port: health, scheme", "port: metrics, scheme", "port metrics"},
		"a volume of the node":       {"emptyDir: {}", "hostPath: {path: /}", "needs a kubelet"},
		"a Secret that is not there": {"server-tls", "missing", `"missing" not found`},
	} {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(server, tc.replace) {
				t.Fatal("the manifest has not what is to be replaced")
			}
			chart := chartOf(t, strings.Replace(server, tc.replace, tc.by, 1))
			w := chart.workloads[0]
			cluster := &Cluster{typed: fake.NewClientset(
				&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: "server-tls"}},
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: "server-config"}},
			)}
			_, err := (&Program{}).prepare(t.Context(), cluster, w, chart.servicesOf(w), t.TempDir())
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want something with %q", err, tc.want)
			}
		})
	}
	for name, tc := range map[string]struct{ replace, by string }{
		"two containers": {"        - name: server\n", "        - {name: sidecar, command: [/sidecar]}\n        - name: server\n"},
		"no command":     {"          command: [/usr/bin/lanyard-server, serve]\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			objects, err := parseManifest("chart.yaml", []byte(strings.Replace(server, tc.replace, tc.by, 1)))
			must.Succeed(t, err)
			var r rendered
			if err := r.add(objects[0].Unstructured); err == nil || !strings.Contains(err.Error(), "Deployment lanyard-server") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestEnvironment(t *testing.T) {
	limit := func(resource string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: resource}}
	}
	limits := corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}}
	l := &layout{}
	got, err := l.environment(corev1.Container{
		Env:       []corev1.EnvVar{{Name: "A", Value: "1=2"}, {Name: "B"}, {Name: "GOMEMLIMIT", ValueFrom: limit("limits.memory")}},
		Resources: limits,
	})
	if err != nil || !slices.Equal(got, []string{"A=1=2", "B=", "GOMEMLIMIT=1073741824"}) {
		t.Errorf("got %q, %v", got, err)
	}
	for _, v := range []corev1.EnvVar{
		{Name: "A", ValueFrom: &corev1.EnvVarSource{}},
		{Name: "B", Value: "$(A)"},
		{Name: "C", ValueFrom: limit("limits.cpu")},
		{Name: "D", ValueFrom: limit("requests.memory")},
	} {
		if got, err := l.environment(corev1.Container{Env: []corev1.EnvVar{v}, Resources: limits}); err == nil {
			t.Errorf("%s gives %q", v.Name, got)
		}
	}
}

// TestHostsOfOthers checks that hosts of other programs' Services become addresses, alone and in
// lists.
func TestHostsOfOthers(t *testing.T) {
	l := &layout{hosts: map[string]string{"lanyard-controller.lanyard-system.svc:80": "127.0.0.1:4711"}}
	for value, want := range map[string]string{
		"lanyard-controller.lanyard-system.svc.cluster.local":                      "127.0.0.1:4711",
		"other.example.com,lanyard-controller.lanyard-system.svc.cluster.local:80": "other.example.com,127.0.0.1:4711",
		"lanyard-controller.lanyard-system.svc.cluster.local:9090":                 "lanyard-controller.lanyard-system.svc.cluster.local:9090",
		"http://lanyard-controller.lanyard-system.svc.cluster.local./path":         "http://127.0.0.1:4711/path",
		"a,b": "a,b", "": "",
	} {
		if got, err := l.translate(value); err != nil || got != want {
			t.Errorf("%q becomes %q, %v, want %q", value, got, err, want)
		}
	}
}
