//go:build !concurrent

// These tests start no goroutine. The race detector would only slow them down, so dev/unit-tests
// runs them without it.

package chart_test

import (
	"reflect"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/chart"
)

func TestParseValues(t *testing.T) {
	got, err := chart.ParseValues([]string{"log.level=debug", "shards={a,b}", "reconcile.concurrent=3", "log.level=info", "log.format=text"})
	want := map[string]any{
		"log": map[string]any{"level": "info", "format": "text"}, "shards": []any{"a", "b"}, "reconcile": map[string]any{"concurrent": int64(3)},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("are %v, %v", got, err)
	}
	if _, err := chart.ParseValues([]string{"log.level"}); err == nil {
		t.Error("a name without a value was read")
	}
	if got, err := chart.ParseValues(nil); err != nil || len(got) > 0 {
		t.Errorf("none are %v, %v", got, err)
	}
}
