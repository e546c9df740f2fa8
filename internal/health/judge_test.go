package health_test

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/internal/expression/expressiontest"
	"github.com/lanyard-dev/lanyard/internal/health"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// object returns an object as the API server gives it.
func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	must.Succeed(t, err)
	o := &unstructured.Unstructured{}
	must.Succeed(t, o.UnmarshalJSON(data))
	return o
}

// TestQuick judges objects of kinds without expressions.
func TestQuick(t *testing.T) {
	judge := health.New(nil, "a", []health.Check{{Group: "batch", Kind: "CronJob", Current: "true"}}, false)
	for text, want := range map[string]health.State{
		`{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}`:                                                                                      health.Current,
		`{apiVersion: v1, kind: ConfigMap, metadata: {name: x, deletionTimestamp: "2026-01-01T00:00:00Z"}}`:                                           health.InProgress,
		`{apiVersion: v1, kind: Pod, metadata: {name: x}, status: {phase: Running, conditions: [{type: Ready, status: "True"}]}}`:                     health.Current,
		`{apiVersion: v1, kind: Pod, metadata: {name: x}, status: {phase: Pending}}`:                                                                  health.InProgress,
		`{apiVersion: v1, kind: Pod, metadata: {name: x}, status: {phase: Running, containerStatuses: [text]}}`:                                       health.InProgress,
		`{apiVersion: v1, kind: Pod, metadata: {name: x}, status: {phase: Running, containerStatuses: [{state: {waiting: text}}]}}`:                   health.InProgress,
		`{apiVersion: apps/v1, kind: Deployment, metadata: {name: x, generation: 1}, spec: {replicas: 1}}`:                                            health.InProgress,
		`{apiVersion: apps/v1, kind: Deployment, metadata: {name: x}, status: {conditions: [{type: Progressing, reason: ProgressDeadlineExceeded}]}}`: health.Failed,
		`{apiVersion: example.com/v1, kind: Thing, metadata: {name: x}}`:                                                                              health.Current,
		`{apiVersion: example.com/v1, kind: Thing, metadata: {name: x}, status: {conditions: [{type: Ready, status: "False"}]}}`:                      health.InProgress,
		`{apiVersion: example.com/v1, kind: Thing, metadata: {name: x}, status: {conditions: [{type: Stalled, status: "True"}]}}`:                     health.Failed,
		`{apiVersion: example.com/v1, kind: Thing, metadata: {name: x, generation: 2}, status: {observedGeneration: 1}}`:                              health.InProgress,
		`{apiVersion: example.com/v1, kind: Thing, metadata: {name: x}, status: {conditions: text}}`:                                                  health.InProgress,
		`{apiVersion: batch/v1, kind: Job, metadata: {name: x}, status: {startTime: x, active: 1}}`:                                                   health.InProgress,
		`{apiVersion: batch/v1, kind: Job, metadata: {name: x}, spec: {suspend: true}}`:                                                               health.Current,
		`{apiVersion: batch/v1, kind: Job, metadata: {name: x}, status: {startTime: x, conditions: [{type: Complete, status: "True"}]}}`:              health.Current,
		`{apiVersion: batch/v1, kind: Job, metadata: {name: x}, status: {startTime: x, conditions: [{type: Failed, status: "True"}]}}`:                health.Failed,
		`{apiVersion: batch/v1, kind: CronJob, metadata: {name: x, generation: 2}, status: {observedGeneration: 1}}`:                                  health.InProgress,
	} {
		got, ok := judge.Quick(object(t, text))
		if !ok || got.State != want || got.State != health.Current && got.Message == "" {
			t.Errorf("%s: %+v, %v", text, got, ok)
		}
	}
	if _, ok := judge.Quick(object(t, `{apiVersion: batch/v1, kind: CronJob, metadata: {name: x}}`)); ok {
		t.Error("judged without the expression")
	}
}

// TestStatus judges objects with expressions.
func TestStatus(t *testing.T) {
	judge := health.New(expressiontest.New(t), "a", []health.Check{
		{Group: "example.com", Current: "true"},
		{Group: "example.com", Kind: "Thing", InProgress: "status.phase == 'Begun'", Failed: "status.phase == 'Broken'", Current: "status.phase == 'Done'"},
		{Kind: "Secret", Current: "{}[data.password]"},
	}, false)
	for text, want := range map[string]health.Status{
		`{apiVersion: example.com/v1, kind: Thing, metadata: {name: x}, status: {phase: Begun}}`:  {State: health.InProgress, Message: "the expression inProgress is true"},
		`{apiVersion: example.com/v1, kind: Thing, metadata: {name: x}, status: {phase: Broken}}`: {State: health.Failed, Message: "the expression failed is true"},
		`{apiVersion: example.com/v2, kind: Thing, metadata: {name: x}, status: {phase: Done}}`:   {State: health.Current},
		`{apiVersion: example.com/v1, kind: Thing, metadata: {name: x}, status: {phase: Other}}`:  {State: health.InProgress, Message: "the expressions inProgress, failed, current are false"},
		`{apiVersion: example.com/v1, kind: Thing, metadata: {name: x}}`:                          {State: health.InProgress, Message: "the expression inProgress: no such attribute(s): status.phase"},
		`{apiVersion: example.com/v1, kind: Other, metadata: {name: x}}`:                          {State: health.Current},
		`{apiVersion: example.org/v1, kind: Other, metadata: {name: x}}`:                          {State: health.Current},
		`{apiVersion: v1, kind: Secret, metadata: {name: x}, data: {password: hunter2}}`: {
			State: health.InProgress, Message: "the expression current: the evaluation fails; why is not shown, since the text may have values of Secrets",
		},
	} {
		got, err := judge.Status(t.Context(), object(t, text))
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	must.Succeed(t, judge.Parse(t.Context()))
	hidden := health.New(nil, "a", nil, true)
	if got, err := hidden.Status(t.Context(), object(t, `{apiVersion: v1, kind: Thing, metadata: {name: x}, status: {conditions: [{type: Ready, status: "False", message: hunter2}]}}`)); err != nil || got != (health.Status{State: health.InProgress, Message: "its status is InProgress"}) {
		t.Errorf("a status with a secret: %+v, %v", got, err)
	}
	err := health.New(expressiontest.New(t), "a", []health.Check{{Group: "a", Current: "true"}, {Group: "b", Failed: "true", Current: "status."}}, false).Parse(t.Context())
	invalid, ok := errors.AsType[*health.InvalidError](err)
	if !ok || invalid.Field != "healthCheckExprs[1].current" || !strings.HasPrefix(err.Error(), "healthCheckExprs[1].current: it is no valid CEL: line 1, column 8") {
		t.Errorf("an invalid expression: %v", err)
	}
}

// TestStatusOfHostile ends expressions that need too much.
func TestStatusOfHostile(t *testing.T) {
	judge := health.New(expressiontest.New(t), "a", []health.Check{{Group: "example.com", Current: "spec.a.replace('', spec.a) == ''"}}, false)
	o := object(t, `{apiVersion: example.com/v1, kind: Thing, metadata: {name: x}}`)
	o.Object["spec"] = map[string]any{"a": strings.Repeat("a", 1<<20)}
	got, err := judge.Status(t.Context(), o)
	if err != nil || got.State != health.Failed || !strings.Contains(got.Message, "memory") {
		t.Errorf("%+v, %v", got, err)
	}
}
