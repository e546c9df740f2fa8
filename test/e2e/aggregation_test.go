package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/internal/local"
)

// programVar is an environment variable that makes the test binary act as another program. With the
// value helmProgram it runs helmPushes. With any other value it serves the aggregated API of a
// chart.
const programVar = "LANYARD_E2E_PROGRAM"

// aggregatedChart is a chart with one program, which serves an aggregated API.
const aggregatedChart = `
apiVersion: v1
kind: Secret
metadata: {name: api-tls, namespace: lanyard-system}
stringData: {tls.crt: %q, tls.key: %q}
---
apiVersion: v1
kind: Service
metadata: {name: api, namespace: lanyard-system}
spec: {selector: {app: api}, ports: [{port: 443, targetPort: https}]}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.callers.e2e.example.com}
spec:
  group: callers.e2e.example.com
  version: v1
  groupPriorityMinimum: 100
  versionPriority: 100
  caBundle: %s
  service: {name: api, namespace: lanyard-system}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: api, namespace: lanyard-system}
spec:
  selector: {matchLabels: {app: api}}
  template:
    metadata: {labels: {app: api}}
    spec:
      automountServiceAccountToken: false
      containers:
      - name: api
        image: none
        command: [/api]
        args: [--listen=:8443, --certificates=/tls]
        env: [{name: LANYARD_E2E_PROGRAM, value: api}]
        ports: [{name: https, containerPort: 8443}]
        readinessProbe: {httpGet: {path: /readyz, port: https, scheme: HTTPS}}
        volumeMounts: [{name: tls, mountPath: /tls}]
      volumes: [{name: tls, secret: {secretName: api-tls}}]
`

// callerPath is the only resource of the aggregated API. It returns the caller's name, as the API
// server passed it on.
const callerPath = "/apis/callers.e2e.example.com/v1/caller"

// serveAggregated is the main function of the aggregated API server. It returns the exit status.
func serveAggregated(args []string) int {
	var address, certificates string
	for _, arg := range args {
		if value, ok := strings.CutPrefix(arg, "--listen="); ok {
			address = value
		}
		if value, ok := strings.CutPrefix(arg, "--certificates="); ok {
			certificates = value
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /apis/callers.e2e.example.com/v1", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "callers.e2e.example.com/v1",
		})
	})
	mux.HandleFunc("GET "+callerPath, func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, r.Header.Get("X-Remote-User"))
	})
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	server := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: patience}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.ListenAndServeTLS(certificates+"/tls.crt", certificates+"/tls.key"); !errors.Is(err, http.ErrServerClosed) {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// TestAggregatedAPI starts a chart's program that serves an aggregated API. The cluster's API
// server must reach the program on this machine, verify its certificate, and pass on who is
// calling. This must also work after the program has moved to another port.
func TestAggregatedAPI(t *testing.T) {
	beside(t, lane4)
	cluster := startCluster(t, "aggregated", "", nil)
	ca := newAuthority(t)
	certificate, key := ca.issue(t, "api.lanyard-system.svc")
	must(t, "install the chart", cluster.Install(t.Context(), chartObjects(t, fmt.Sprintf(aggregatedChart, certificate, key, base64.StdEncoding.EncodeToString(ca.pem)))))

	typed, err := kubernetes.NewForConfig(cluster.Config())
	must(t, "make a client", err)
	self, err := typed.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	must(t, "ask who is calling", err)
	binary, err := os.Executable()
	must(t, "find this program", err)
	for range 2 {
		program, err := cluster.StartProgram(t.Context(), local.ProgramOptions{Workload: "api", Binary: binary})
		must(t, "start the program", err)
		caller, err := typed.RESTClient().Get().AbsPath(callerPath).DoRaw(t.Context())
		if must(t, "ask the aggregated API", err); string(caller) != self.Status.UserInfo.Username {
			t.Errorf("the aggregated API was told that %q is calling; want %q", caller, self.Status.UserInfo.Username)
		}
		ctx, cancel := context.WithTimeout(t.Context(), stopGrace)
		err = program.Stop(ctx)
		cancel()
		must(t, "stop the program", err)
	}

	// The API server must refuse to connect to a program whose certificate is for another Service.
	certificate, key = ca.issue(t, "another.lanyard-system.svc")
	must(t, "install the chart", cluster.Install(t.Context(), chartObjects(t, fmt.Sprintf(aggregatedChart, certificate, key, base64.StdEncoding.EncodeToString(ca.pem)))))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := cluster.StartProgram(ctx, local.ProgramOptions{Workload: "api", Binary: binary}); err == nil {
		t.Error("a program whose certificate names another Service is reached")
	}
}

// chartObjects decodes the objects of a chart.
func chartObjects(t *testing.T, manifests string) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	for document := range strings.SplitSeq(manifests, "---\n") {
		o := &unstructured.Unstructured{}
		must(t, "read the chart", yaml.UnmarshalStrict([]byte(document), &o.Object))
		objects = append(objects, o)
	}
	return objects
}
