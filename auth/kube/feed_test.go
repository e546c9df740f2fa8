package kube_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// feed serves the objects of one kind, which clients can list and watch, as an API server does.
type feed[O client.Object] struct {
	empty func() O // returns an object that has only its type

	mu       sync.Mutex
	version  int
	objects  map[string]O  // by namespace/name
	events   []watchEvent  // all events so far
	happened chan struct{} // closed and replaced at every event
}

type watchEvent struct {
	Type    string        `json:"type"`
	Object  client.Object `json:"object"`
	version int
}

func newFeed[O client.Object](empty func() O) *feed[O] {
	return &feed[O]{empty: empty, objects: map[string]O{}, happened: make(chan struct{})}
}

// put creates or changes an object. An object with another UID replaces the old object.
func (f *feed[O]) put(object O) {
	f.mu.Lock()
	defer f.mu.Unlock()
	what := "ADDED"
	if last, ok := f.objects[key(object)]; ok {
		what = "MODIFIED"
		if last.GetUID() != object.GetUID() {
			f.happen("DELETED", last)
			what = "ADDED"
		}
	}
	f.happen(what, object)
}

func (f *feed[O]) remove(namespace, name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.happen("DELETED", f.objects[namespace+"/"+name])
}

func (f *feed[O]) get(namespace, name string) (O, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	object, ok := f.objects[namespace+"/"+name]
	return object, ok
}

// happen records an event. Callers must hold mu.
func (f *feed[O]) happen(what string, object O) {
	f.version++
	object = object.DeepCopyObject().(O)
	object.SetResourceVersion(strconv.Itoa(f.version))
	if what == "DELETED" {
		delete(f.objects, key(object))
	} else {
		f.objects[key(object)] = object
	}
	f.events = append(f.events, watchEvent{what, object, f.version})
	close(f.happened)
	f.happened = make(chan struct{})
}

// ServeHTTP lists or watches the objects.
func (f *feed[O]) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if query.Get("watch") == "" {
		f.list(w)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	stream := json.NewEncoder(w)
	seen, _ := strconv.Atoi(query.Get("resourceVersion"))
	if query.Get("sendInitialEvents") == "true" {
		f.mu.Lock()
		seen = f.version
		initial := slices.Collect(maps.Values(f.objects))
		f.mu.Unlock()
		for _, object := range initial {
			_ = stream.Encode(watchEvent{Type: "ADDED", Object: object})
		}
		end := f.empty()
		end.SetResourceVersion(strconv.Itoa(seen))
		end.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		_ = stream.Encode(watchEvent{Type: "BOOKMARK", Object: end})
	}
	for {
		w.(http.Flusher).Flush()
		f.mu.Lock()
		happened, events := f.happened, f.events
		f.mu.Unlock()
		for _, event := range events {
			if event.version > seen {
				_ = stream.Encode(event)
				seen = event.version
			}
		}
		w.(http.Flusher).Flush()
		select {
		case <-happened:
		case <-r.Context().Done():
			return
		}
	}
}

func (f *feed[O]) list(w http.ResponseWriter) {
	apiVersion, kind := f.empty().GetObjectKind().GroupVersionKind().ToAPIVersionAndKind()
	list := struct {
		metav1.TypeMeta `json:",inline"`
		metav1.ListMeta `json:"metadata"`
		Items           []O `json:"items"`
	}{TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: kind + "List"}, Items: []O{}}
	f.mu.Lock()
	defer f.mu.Unlock()
	list.ResourceVersion = strconv.Itoa(f.version)
	list.Items = slices.AppendSeq(list.Items, maps.Values(f.objects))
	answer(w, http.StatusOK, list)
}

func key(object client.Object) string { return object.GetNamespace() + "/" + object.GetName() }

func answer(w http.ResponseWriter, code int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object) // ignore the error, because the client may be gone
}

func refuse(w http.ResponseWriter, status *errors.StatusError) {
	status.ErrStatus.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	answer(w, int(status.ErrStatus.Code), status.ErrStatus)
}
