package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/lanyard-dev/lanyard/internal/wholefile"
)

// Workload is a StatefulSet or a Deployment of the chart.
type Workload struct {
	// Name is the name of the StatefulSet or Deployment.
	Name string
	// Program is the file name of the container's program, such as lanyard-controller.
	Program string
}

// rendered holds the objects of the chart that are needed to start its programs.
type rendered struct {
	workloads []workload
	services  []corev1.Service
	apis      []apiService // aggregated APIs
	ingresses []networkingv1.Ingress
}

// workload is a [Workload] with its pod template.
type workload struct {
	Workload

	stateful  bool // it is a StatefulSet
	pod       corev1.PodTemplateSpec
	container corev1.Container // the only container of the pod
	claims    []string         // names of the volumeClaimTemplates of a StatefulSet
}

// readChart extracts from a chart the objects that are needed to start its programs. StatefulSets
// come first, because the arguments of other programs name their Services.
func readChart(objects []*unstructured.Unstructured) (r rendered, err error) {
	for _, o := range objects {
		if err := r.add(o); err != nil {
			return rendered{}, err
		}
	}
	slices.SortStableFunc(r.workloads, func(a, b workload) int {
		switch {
		case a.stateful == b.stateful:
			return 0
		case a.stateful:
			return -1
		default:
			return 1
		}
	})
	return r, nil
}

// add stores an object of the chart if it is a Service, a StatefulSet, a Deployment, an Ingress or
// an aggregated API.
func (r *rendered) add(o *unstructured.Unstructured) (err error) {
	switch o.GetKind() {
	case "Service":
		var service corev1.Service
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &service)
		r.services = append(r.services, service)
	case "Ingress":
		var ingress networkingv1.Ingress
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &ingress)
		r.ingresses = append(r.ingresses, ingress)
	case "StatefulSet", "Deployment":
		var set appsv1.StatefulSet // also for Deployments: the fields read here are the same
		if err = runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &set); err == nil {
			err = r.addWorkload(set.Name, o.GetKind() == "StatefulSet", set.Spec.Template, set.Spec.VolumeClaimTemplates)
		}
	case "APIService":
		var api apiService
		var aggregated bool
		if api, aggregated, err = readAPIService(o); aggregated {
			r.apis = append(r.apis, api)
		}
	}
	if err != nil {
		return fmt.Errorf("read %s %s of the chart: %w", o.GetKind(), o.GetName(), err)
	}
	return nil
}

// addWorkload stores a workload. Its pods must have exactly one container, with a command.
func (r *rendered) addWorkload(name string, stateful bool, pod corev1.PodTemplateSpec, claims []corev1.PersistentVolumeClaim) error {
	switch containers := pod.Spec.Containers; {
	case len(containers) != 1 || len(pod.Spec.InitContainers) > 0:
		return fmt.Errorf("its pods have %d containers and %d init containers, not 1 and 0", len(containers), len(pod.Spec.InitContainers))
	case len(containers[0].Command) == 0:
		return errors.New("its container does not name its command")
	}
	container := pod.Spec.Containers[0]
	w := workload{Workload: Workload{Name: name, Program: path.Base(container.Command[0])}, stateful: stateful, pod: pod, container: container}
	for _, claim := range claims {
		w.claims = append(w.claims, claim.Name)
	}
	r.workloads = append(r.workloads, w)
	return nil
}

// names returns the workloads without their pod templates.
func (r *rendered) names() []Workload {
	var all []Workload
	for _, w := range r.workloads {
		all = append(all, w.Workload)
	}
	return all
}

// servicesOf returns the Services that select a workload's pods.
func (r *rendered) servicesOf(w workload) []corev1.Service {
	return slices.DeleteFunc(slices.Clone(r.services), func(s corev1.Service) bool {
		return len(s.Spec.Selector) == 0 || !labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(w.pod.Labels))
	})
}

// layout maps a container's ports, volumes and Services to addresses and folders of this machine.
type layout struct {
	// ports maps the name of each port to a loopback address.
	ports map[string]string
	// folders maps the name of each mounted volume to a folder.
	folders map[string]string

	// reserved holds the reserved ports.
	reserved *Reservation

	// listen maps a port as written in an argument, such as ":8080", to its address.
	listen map[string]string
	// hosts maps host and port of a Service to an address. An example of a key is
	// "lanyard-controller.lanyard-system.svc:80".
	hosts map[string]string
	// mounts maps each mount path in the container to the folder that replaces it on this machine.
	mounts map[string]string
	// unused has the keys of the maps listen and mounts that no argument or environment variable
	// has used yet. Each value describes its key, such as "port health".
	unused map[string]string
}

// newLayout reserves a free address for each port of a workload, and chooses a folder below dir for
// each volume. The map others has the hosts of other workloads' Services.
func newLayout(w workload, services []corev1.Service, others map[string]string, dir string) (*layout, error) {
	l := &layout{
		ports: map[string]string{}, folders: map[string]string{},
		listen: map[string]string{}, hosts: map[string]string{}, mounts: map[string]string{}, unused: map[string]string{},
	}
	var err error
	if l.reserved, err = Reserve(len(w.container.Ports)); err != nil {
		return nil, err
	}
	for i, port := range w.container.Ports {
		address := l.reserved.Addresses[i]
		l.ports[port.Name] = address
		listen := ":" + strconv.Itoa(int(port.ContainerPort))
		l.listen[listen], l.unused[listen] = address, "port "+port.Name
	}
	for _, mount := range w.container.VolumeMounts {
		folder := filepath.Join(dir, mount.Name)
		l.folders[mount.Name] = folder
		l.mounts[path.Clean(mount.MountPath)] = filepath.Join(folder, mount.SubPath)
		l.unused[path.Clean(mount.MountPath)] = "volume " + mount.Name
	}
	maps.Copy(l.hosts, others)
	for _, service := range services {
		for _, port := range service.Spec.Ports {
			if address, ok := l.port(port.TargetPort, port.Port); ok {
				host := service.Name + "." + service.Namespace + ".svc"
				l.hosts[net.JoinHostPort(host, strconv.Itoa(int(port.Port)))] = address
			}
		}
	}
	return l, nil
}

// release releases the reserved ports. It does nothing for a nil layout.
func (l *layout) release() {
	if l != nil {
		l.reserved.Release()
	}
}

// port returns the address of the container's port with the given name or number. For the number 0,
// port uses fallback.
func (l *layout) port(target intstr.IntOrString, fallback int32) (string, bool) {
	if target.Type == intstr.String {
		address, ok := l.ports[target.StrVal]
		return address, ok
	}
	if target.IntVal != 0 {
		fallback = target.IntVal
	}
	address, ok := l.listen[":"+strconv.Itoa(int(fallback))]
	return address, ok
}

// translate translates the value of an argument or variable from the container to this machine. It
// replaces a port, a path in a volume, and the URL of a Service. Other values stay.
func (l *layout) translate(value string) (string, error) {
	if strings.Contains(value, "$(") {
		return "", fmt.Errorf("%q refers to a variable, which needs a kubelet", value)
	}
	if address, ok := l.listen[value]; ok {
		delete(l.unused, value)
		return address, nil
	}
	// Backward order: a nested mount comes before its parent.
	for _, at := range slices.Backward(slices.Sorted(maps.Keys(l.mounts))) {
		if rest, ok := strings.CutPrefix(value, at); ok && (rest == "" || rest[0] == '/') {
			delete(l.unused, at)
			return filepath.Join(l.mounts[at], rest), nil
		}
	}
	if u, err := url.Parse(value); err == nil && u.Host != "" {
		if address, ok := l.service(u); ok {
			u.Host = address
			return u.String(), nil
		}
	}
	return l.translateHosts(value), nil
}

// translateHosts translates a list of hosts, each "host" or "host:port". Without a port, the port is
// 80. Hosts of no Service stay.
func (l *layout) translateHosts(list string) string {
	hosts := strings.Split(list, ",")
	for i, host := range hosts {
		if address, ok := l.service(&url.URL{Scheme: "http", Host: host}); ok {
			hosts[i] = address
		}
	}
	return strings.Join(hosts, ",")
}

// service returns the address for a URL whose host is a Service's DNS name. Source: Kubernetes,
// "DNS for Services and Pods".
func (l *layout) service(u *url.URL) (string, bool) {
	port := cmp.Or(u.Port(), map[string]string{"https": "443"}[u.Scheme], "80")
	for name, address := range l.hosts {
		host, p, err := net.SplitHostPort(name)
		if err == nil && p == port && (u.Hostname() == host || strings.HasPrefix(u.Hostname(), host+".")) {
			return address, true
		}
	}
	return "", false
}

// arguments returns the arguments of the container's program, translated for this machine.
func (l *layout) arguments(c corev1.Container) ([]string, error) {
	var args []string
	for _, arg := range slices.Concat(c.Command[1:], c.Args) {
		name, value, ok := strings.Cut(arg, "=")
		if !ok {
			name, value = "", arg
		}
		value, err := l.translate(value)
		if err != nil {
			return nil, fmt.Errorf("argument %w", err)
		}
		if ok {
			value = name + "=" + value
		}
		args = append(args, value)
	}
	return args, nil
}

// environment returns the container's variables as NAME=VALUE, translated for this machine. Of the
// sources in valueFrom, it supports the container's limits and the pod's namespace. Every other
// source is an error.
func (l *layout) environment(c corev1.Container) ([]string, error) {
	env := make([]string, 0, len(c.Env))
	for _, v := range c.Env {
		value := v.Value
		if v.ValueFrom != nil {
			var ok bool
			if value, ok = downward(c, v.ValueFrom); !ok {
				return nil, fmt.Errorf("variable %s is taken from elsewhere (valueFrom), which needs a kubelet", v.Name)
			}
		}
		value, err := l.translate(value)
		if err != nil {
			return nil, fmt.Errorf("variable %s: %w", v.Name, err)
		}
		env = append(env, v.Name+"="+value)
	}
	if len(c.EnvFrom) > 0 {
		return nil, errors.New("variables are taken from elsewhere (envFrom), which needs a kubelet")
	}
	return env, nil
}

// downward returns the pod's namespace, or a limit of the container in bytes or cores. Source:
// Kubernetes, "Downward API".
func downward(c corev1.Container, from *corev1.EnvVarSource) (string, bool) {
	if from.FieldRef != nil {
		return Namespace, from.FieldRef.FieldPath == "metadata.namespace"
	}
	if from.ResourceFieldRef == nil || !from.ResourceFieldRef.Divisor.IsZero() {
		return "", false
	}
	name, ok := strings.CutPrefix(from.ResourceFieldRef.Resource, "limits.")
	limit, set := c.Resources.Limits[corev1.ResourceName(name)]
	return strconv.FormatInt(limit.Value(), 10), ok && set
}

// checkUsed returns an error for each port or volume of the container that is in none of its
// arguments and environment variables. Only through these does the program learn the local address
// of a port, and the local folder of a volume. Otherwise it would use the container's port or path
// on this machine.
func (l *layout) checkUsed() error {
	var errs []error
	for _, at := range slices.Sorted(maps.Keys(l.unused)) {
		errs = append(errs, fmt.Errorf("no argument and no variable names %s as %s, which has another place here", l.unused[at], at))
	}
	return errors.Join(errs...)
}

// probe returns the URL of the container's readiness probe.
func (l *layout) probe(c corev1.Container) (string, error) {
	if c.ReadinessProbe == nil || c.ReadinessProbe.HTTPGet == nil {
		return "", errors.New("its container has no readinessProbe with httpGet")
	}
	get := c.ReadinessProbe.HTTPGet
	address, ok := l.port(get.Port, 0)
	if !ok {
		return "", fmt.Errorf("its readinessProbe asks port %s, which the container does not have", get.Port.String())
	}
	scheme := cmp.Or(strings.ToLower(string(get.Scheme)), "http")
	return (&url.URL{Scheme: scheme, Host: address, Path: get.Path}).String(), nil
}

// fill creates the folders of a workload's volumes. It copies Secrets and ConfigMaps once; later
// changes do not reach the folder.
func (c *Cluster) fill(ctx context.Context, w workload, l *layout) error {
	// not l.folders: only l.mounts has the subfolders of volumes (subPath)
	for _, folder := range l.mounts {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return fmt.Errorf("make the folder of a volume: %w", err)
		}
	}
	for name, folder := range l.folders {
		if slices.Contains(w.claims, name) {
			continue
		}
		at := slices.IndexFunc(w.pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name })
		if at < 0 {
			return fmt.Errorf("the container mounts volume %s, which its pod does not have", name)
		}
		files, err := c.files(ctx, w.pod.Spec.Volumes[at])
		if err != nil {
			return fmt.Errorf("volume %s: %w", name, err)
		}
		for file, data := range files {
			if err := wholefile.Write(filepath.Join(folder, file), data); err != nil {
				return fmt.Errorf("volume %s: %w", name, err)
			}
		}
	}
	return nil
}

// files returns the initial files of a volume, by file name.
func (c *Cluster) files(ctx context.Context, v corev1.Volume) (map[string][]byte, error) {
	switch {
	case v.EmptyDir != nil, v.PersistentVolumeClaim != nil:
		return nil, nil
	case v.Secret != nil && len(v.Secret.Items) == 0:
		secret, err := c.typed.CoreV1().Secrets(Namespace).Get(ctx, v.Secret.SecretName, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return secret.Data, nil
	case v.ConfigMap != nil && len(v.ConfigMap.Items) == 0:
		config, err := c.typed.CoreV1().ConfigMaps(Namespace).Get(ctx, v.ConfigMap.Name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		files := map[string][]byte{}
		maps.Copy(files, config.BinaryData)
		for name, text := range config.Data {
			files[name] = []byte(text)
		}
		return files, nil
	default:
		return nil, errors.New("it is of a kind that needs a kubelet")
	}
}
