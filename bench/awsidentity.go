package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/internal/identity/identitytest"
)

// cost is the cost of one operation. The command in the folder bench/capa prints it as JSON.
type cost struct {
	Nanoseconds int64 `json:"nanoseconds"`
	Allocations int64 `json:"allocations"`
}

func (c cost) String() string {
	return fmt.Sprintf("%.1f µs, %d allocs", float64(c.Nanoseconds)/1000, c.Allocations)
}

// within reports whether the operation takes less than a limit.
func (c cost) within(limit time.Duration) bool { return time.Duration(c.Nanoseconds) < limit }

// lentIdentities measures the cost of an AWS identity that is lent to a namespace.
//
// The first row compares Lanyard's fingerprint of the identity with the hash of Cluster API
// Provider AWS. Cluster API Provider AWS makes the hash at each reconciliation. Lanyard makes the
// fingerprint only when the identity changes.
//
// The second row is how long Lanyard takes to check the grants of a chain of three identities, and
// to find the chain's credential in the cache.
func lentIdentities(ctx context.Context, _ settings) ([]result, error) {
	theirs, err := capa(ctx)
	if err != nil {
		return nil, err
	}
	fingerprint, err := leastCost(fingerprintIdentity)
	if err != nil {
		return nil, fmt.Errorf("fingerprint: %w", err)
	}
	resolve, err := leastCost(resolveIdentity)
	if err != nil {
		return nil, fmt.Errorf("resolve and hit: %w", err)
	}
	ratio := float64(theirs.Nanoseconds) / float64(fingerprint.Nanoseconds)
	return []result{
		{
			"AWS identity: fingerprint", fingerprint.String(), theirs.String(),
			times(ratio), "<2 µs", fingerprint.within(2 * time.Microsecond),
		},
		{"AWS identity: resolve and hit", resolve.String(), "", "", "<10 µs", resolve.within(10 * time.Microsecond)},
	}, nil
}

// capa runs the command in the folder capa, which measures Cluster API Provider AWS with that
// project's own package. The package needs a separate module.
func capa(ctx context.Context) (cost, error) {
	var theirs cost
	command := exec.CommandContext(ctx, "go", "run", ".")
	command.Dir = "capa"
	out, err := command.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return theirs, fmt.Errorf("measure Cluster API Provider AWS: %w: %s", err, exit.Stderr)
	}
	if err == nil {
		err = json.Unmarshal(out, &theirs)
	}
	if err != nil {
		return theirs, fmt.Errorf("measure Cluster API Provider AWS: %w", err)
	}
	return theirs, nil
}

// leastCost measures several times, and returns the least cost: other work of the machine only adds
// cost.
func leastCost(measure func(*testing.B)) (cost, error) {
	var least cost
	for range turns {
		r := testing.Benchmark(measure)
		if r.N == 0 {
			return least, errors.New("the benchmark failed")
		}
		if least.Nanoseconds == 0 || r.NsPerOp() < least.Nanoseconds {
			least = cost{Nanoseconds: r.NsPerOp(), Allocations: r.AllocsPerOp()}
		}
	}
	return least, nil
}

// fingerprintIdentity measures [auth.Fingerprint] with all values that determine the session of one
// role.
func fingerprintIdentity(b *testing.B) {
	b.Helper()
	attributes, err := aws.SessionRequest{
		Source: "AWSClusterControllerIdentity default", RoleARN: "arn:aws:iam::222233334444:role/target", Name: "target",
		ExternalID: "7a5b816a-7743-4377-a382-2d695bf1f172", Duration: time.Hour,
		PolicyARNs: []string{"arn:aws:iam::222233334444:policy/restricted"},
	}.Attributes()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		auth.Fingerprint(attributes, "lanyard.dev:awsclusterroleidentity:target",
			"0f8e2f6e-4a4e-4c35-9c1f-5e9a55b7a2cd", "jO6bT8cR2m4r0kQy5m1Lxw")
	}
}

// resolveIdentity measures two steps with a chain of three identities. The first step checks the
// grants. The second step finds the chain's credential in the cache.
func resolveIdentity(b *testing.B) {
	b.Helper()
	w := identitytest.New(b)
	w.Static("root", identitytest.Admits("team-a"))
	landing := w.CloudRole(identitytest.Management, "landing", identitytest.Root, nil)
	w.Role("landing", identitytest.RoleSpec(landing, "root", identitytest.Admits("team-a")))
	subject := w.Role("target",
		identitytest.RoleSpec(w.CloudRole(identitytest.Workload, "target", landing, nil), "role/landing", identitytest.Admits("team-a")))
	w.MustGet("team-a", subject)
	b.ReportAllocs()
	for b.Loop() {
		// Do not use MustGet here: it calls b.Helper, which would take a third of the measured
		// time.
		if err := w.Identities.Admits(b.Context(), "team-a", subject); err != nil {
			b.Fatal(err)
		}
		if _, _, err := w.Get("team-a", subject); err != nil {
			b.Fatal(err)
		}
	}
}
