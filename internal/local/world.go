package local

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/internal/controlplane"
)

// The world's names.
const (
	// Issuer is the issuer of the cluster's ServiceAccount tokens, in the form of an EKS cluster's.
	Issuer = "https://oidc.eks.eu-west-1.amazonaws.com/id/LANYARD0000000000000000000000DE"
	// Account is the AWS account of the demonstration.
	Account = "123456789123"
	// Region is its region.
	Region = "eu-west-1"
	// AzureTenant is the Azure tenant of ServiceAccounts that name none: the controller's AZURE_TENANT_ID.
	AzureTenant = "72f988bf-86f1-41af-91ab-2d7cd011db47"
	// Publisher is the IAM user with whose permissions [World.Push] publishes.
	Publisher = "publisher"
	// Namespace is where the chart is installed.
	Namespace = "lanyard-system"
	// FieldManager is the owner of the fields that the world applies.
	FieldManager = "lanyard-up"
)

// Options say what a world is made of. Dir, ControlPlane and Cloud are required.
type Options struct {
	// Dir is the folder of all files. It must be empty, absent, or left by a former world, which is then removed.
	Dir string
	// ControlPlane is the path of the program that `make build` makes from dev/controlplane.
	ControlPlane string
	// Cloud is what is in the cloud. Where [Account] has the user [Publisher], the world adds an access key to it.
	Cloud cloudtest.Config
	// Progress is called with one line per step of the start. Optional. Calls end before Start returns.
	Progress func(step string)
}

// World is a running control plane and a running cloud that knows it as an issuer. It is safe for concurrent use.
type World struct {
	folder *folder
	cloud  *Cloud
	plane  *controlplane.ControlPlane
	key    aws.AccessKey // the publisher's
	logs   []*os.File

	server   string // the API server's URL
	serverCA string // path of the certificate that vouches for it

	issuer *http.Transport // to the API server's discovery documents

	config *rest.Config // the administrator's
	client client.Client
	typed  kubernetes.Interface

	ended   chan struct{} // closed when a part has ended that should not have
	endOnce sync.Once

	mu          sync.Mutex // guards the fields below
	statefulset map[string]container
	children    []*Controller
	pushed      map[string]string // digest by repository URL and tag
}

// MissingBinaryError is a program that is not where it should be.
type MissingBinaryError struct {
	// Path is where it was looked for.
	Path string
	// Flag names another place.
	Flag string
	// Err is why it cannot be used.
	Err error
}

// Error says what to do.
func (e *MissingBinaryError) Error() string {
	return fmt.Sprintf("program %s: %v; run `make build`, or say with %s where it is", e.Path, e.Err, e.Flag)
}

// Unwrap returns why the program cannot be used.
func (e *MissingBinaryError) Unwrap() error { return e.Err }

// CheckBinary returns a *MissingBinaryError if there is no program at path that can be run.
func CheckBinary(path, flag string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		err = errors.Unwrap(err) // *fs.PathError: the path is in the message already
	case info.IsDir():
		err = errors.New("is a folder")
	case info.Mode()&0o111 == 0:
		err = errors.New("is not executable")
	}
	if err != nil {
		return &MissingBinaryError{Path: path, Flag: flag, Err: err}
	}
	return nil
}

// Start starts a cloud and a control plane, and publishes the control plane's keys under the host of [Issuer]. When ctx ends
// before that, everything is stopped again; later, ctx has no effect, and [World.Stop] ends everything.
func Start(ctx context.Context, o Options) (_ *World, err error) {
	if err := CheckBinary(o.ControlPlane, "--controlplane"); err != nil {
		return nil, err
	}
	progress := o.Progress
	if progress == nil {
		progress = func(string) {}
	}
	f, err := claim(ctx, o.Dir)
	if err != nil {
		return nil, err
	}
	w := &World{folder: f, pushed: map[string]string{}, statefulset: map[string]container{}, ended: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Stop(context.WithoutCancel(ctx)))
		}
	}()
	cfg, key, err := withPublisher(o.Cloud)
	if err != nil {
		return nil, err
	}
	w.key = key
	if w.cloud, err = startCloud(ctx, f, cfg, ""); err != nil {
		return nil, err
	}
	progress("local cloud is up, its proxy at " + w.cloud.ProxyURL())

	log, err := w.log("controlplane.log")
	if err != nil {
		return nil, err
	}
	w.plane, err = controlplane.Start(ctx, controlplane.Options{
		Binary: o.ControlPlane, Dir: f.join(clusterName), Issuer: Issuer, Log: log, Progress: progress,
	})
	if err != nil {
		return nil, err
	}
	w.server, w.serverCA = w.plane.Server(), w.plane.CAFile()
	go w.note(w.plane.Done(), w.plane.Err)
	if err := w.connect(); err != nil {
		return nil, err
	}
	if err := w.publishIssuer(ctx); err != nil {
		return nil, err
	}
	progress("cluster's keys are published at " + Issuer)
	return w, nil
}

// withPublisher gives the publisher a fresh key: one that stood in a file would be somebody's habit some day.
func withPublisher(cfg cloudtest.Config) (cloudtest.Config, aws.AccessKey, error) {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567" // 32: each byte's low bits give one without bias
	random := make([]byte, 16+30)
	if _, err := rand.Read(random); err != nil {
		return cfg, aws.AccessKey{}, fmt.Errorf("make the publisher's key: %w", err)
	}
	id := []byte("AKIA")
	for _, b := range random[:16] {
		id = append(id, letters[b%32])
	}
	key := aws.AccessKey{ID: string(id), Secret: base64.StdEncoding.EncodeToString(random[16:])}

	cfg.AWS.Accounts = slices.Clone(cfg.AWS.Accounts)
	for i, account := range cfg.AWS.Accounts {
		if account.ID != Account {
			continue
		}
		users := slices.Clone(account.Users)
		for j, user := range users {
			if user.Name == Publisher {
				users[j].AccessKeys = append(slices.Clone(user.AccessKeys), key)
				cfg.AWS.Accounts[i].Users = users
				return cfg, key, nil
			}
		}
	}
	return cfg, aws.AccessKey{}, nil
}

// scheme knows the kinds that the world reads by their Go types.
func scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	err := errors.Join(corev1.AddToScheme(s), rbacv1.AddToScheme(s), v1alpha1.AddToScheme(s))
	return s, err
}

func (w *World) connect() error {
	config, err := clientcmd.BuildConfigFromFlags("", w.plane.Kubeconfig())
	if err != nil {
		return fmt.Errorf("read the administrator's kubeconfig: %w", err)
	}
	config.UserAgent = FieldManager
	config.QPS = -1 // the API server's own fairness is enough on one machine
	config.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	w.config = config
	s, err := scheme()
	if err != nil {
		return fmt.Errorf("make the scheme: %w", err)
	}
	if w.client, err = client.New(config, client.Options{Scheme: s}); err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	if w.typed, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	return nil
}

// publishIssuer lets everybody read the cluster's discovery documents, as an administrator does to publish an issuer, and
// serves them under the issuer's name.
func (w *World) publishIssuer(ctx context.Context) error {
	const role = "system:service-account-issuer-discovery" // Kubernetes, "Service account issuer discovery"
	binding := &rbacv1.ClusterRoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: "public-service-account-issuer"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:unauthenticated"}},
	}
	if err := w.client.Create(ctx, binding, client.FieldOwner(FieldManager)); err != nil {
		return fmt.Errorf("let everybody read the cluster's discovery documents: %w", err)
	}
	upstream, err := url.Parse(w.server)
	if err != nil {
		return fmt.Errorf("read the API server's address: %w", err)
	}
	ca, err := os.ReadFile(w.serverCA)
	if err != nil {
		return fmt.Errorf("read the API server's CA: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return fmt.Errorf("the API server's CA %s holds no certificate", w.serverCA)
	}
	w.issuer = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	handler, err := oidc.Proxy(Issuer, upstream, w.issuer)
	if err != nil {
		return fmt.Errorf("publish the issuer: %w", err)
	}
	issuer, err := url.Parse(Issuer)
	if err != nil {
		return fmt.Errorf("publish the issuer: %w", err)
	}
	if err := w.cloud.Handle(issuer.Host, handler); err != nil {
		return fmt.Errorf("publish the issuer: %w", err)
	}
	return nil
}

// Cloud is the world's cloud, to question and to change.
func (w *World) Cloud() *Cloud { return w.cloud }

// ControlPlane is the world's control plane.
func (w *World) ControlPlane() *controlplane.ControlPlane { return w.plane }

// Config is the administrator's connection to the API server, a copy.
func (w *World) Config() *rest.Config { return rest.CopyConfig(w.config) }

// Client is the administrator's client. It knows the core kinds and Lanyard's by their Go types.
func (w *World) Client() client.Client { return w.client }

// Kubeconfig is the path of the administrator's kubeconfig.
func (w *World) Kubeconfig() string { return w.plane.Kubeconfig() }

// Kubectl is kubectl as the administrator, not yet started. The caller sets its streams.
func (w *World) Kubectl(ctx context.Context, args ...string) *exec.Cmd {
	return w.plane.Kubectl(ctx, args...)
}

// Env is what another program needs in its environment to be in the world's cloud, NAME=VALUE.
func (w *World) Env() []string { return w.cloud.Env(w.cloud.CAFile()) }

// Path is a path in the world's folder.
func (w *World) Path(elements ...string) string { return w.folder.join(elements...) }

// log opens a log file that is closed with the world.
func (w *World) log(name string) (*os.File, error) {
	f, err := os.OpenFile(w.folder.join(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open a log: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.logs = append(w.logs, f)
	return f, nil
}

// note closes ended when a part ends in error.
func (w *World) note(done <-chan struct{}, result func() error) {
	<-done
	if result() != nil {
		w.endOnce.Do(func() { close(w.ended) })
	}
}

// Ended is closed when the control plane or a controller has ended that was not stopped by itself; [World.Err] says why.
func (w *World) Ended() <-chan struct{} { return w.ended }

// Stop ends everything in order: controllers, control plane, cloud. Its files stay until the next start.
func (w *World) Stop(ctx context.Context) error {
	w.mu.Lock()
	children, logs := w.children, w.logs
	w.children, w.logs = nil, nil
	w.mu.Unlock()
	var errs []error
	for _, c := range slices.Backward(children) {
		errs = append(errs, c.Stop(ctx))
	}
	if w.issuer != nil {
		// Connections that were opened ahead and never used would keep the API server from stopping for five seconds
		// (net/http, Server.Shutdown).
		w.issuer.CloseIdleConnections()
	}
	if w.plane != nil {
		errs = append(errs, w.plane.Stop(ctx))
	}
	if w.cloud != nil {
		errs = append(errs, w.cloud.end())
	}
	for _, f := range logs {
		errs = append(errs, f.Close())
	}
	errs = append(errs, w.folder.release())
	return errors.Join(errs...)
}

// repositoryURL is the address of a repository of the demonstration's registry, as objects write it.
func repositoryURL(repository string) string {
	return "oci://" + Account + ".dkr.ecr." + Region + ".amazonaws.com/" + strings.TrimPrefix(repository, "/")
}
