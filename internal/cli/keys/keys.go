// Package keys has the commands about the keys of Lanyard's issuer.
package keys

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/cli/cluster"
	"github.com/lanyard-dev/lanyard/internal/cli/frame"
	"github.com/lanyard-dev/lanyard/internal/keyring"
	"github.com/lanyard-dev/lanyard/internal/plain"
)

// kid matches a key's ID: SHA-256 in base64url (RFC 7638). A key's ID may begin with a dash, as
// flags do. IDs of authorities are hexadecimal, so only IDs of keys can be taken for flags.
var kid = regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`)

// ArgumentLast returns the arguments of a command about keys. A kid that begins with a dash is
// moved to the end, after "--". Otherwise the kid would be read as a flag. One kid in 64 begins
// with a dash. The revocation of a leaked key must not fail because of its kid.
func ArgumentLast(args []string) []string {
	at := slices.IndexFunc(args, kid.MatchString)
	if len(args) == 0 || args[0] != "keys" || at < 0 || args[at][0] != '-' || slices.Contains(args, "--") {
		return args
	}
	return append(slices.Delete(slices.Clone(args), at, at+1), "--", args[at])
}

// Commands returns the commands keys and discovery.
func Commands(std frame.IO) []*cobra.Command {
	return []*cobra.Command{newKeys(std), newDiscovery(std)}
}

func newKeys(std frame.IO) *cobra.Command {
	c := &cobra.Command{
		Use:   "keys",
		Short: "Show and change the keys of Lanyard's issuer, and of the SPIFFE trust domain",
		Long: `Show and change the keys of Lanyard's issuer, and of the SPIFFE trust domain.

The keys are in a KeyRing: issuer has the keys of WorkloadIdentities' tokens, and spiffe the keys and authorities of SVIDs. A
key signs only after verifiers can have seen it in the public document, and stays there until
all that it has signed has expired. The token server does this by schedule; these commands are for everything else.`,
		Example: `  # Which key signs, and what each key waits for
  lanyard keys list

  # The same of the SPIFFE trust domain
  lanyard keys list --ring spiffe`,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newKeysList(std), newKeysRotate(std), newKeysConfirm(std), newKeysRevoke(std))
	return c
}

// ringFlags are the flags that name a KeyRing.
type ringFlags struct {
	cluster.Flags

	name string
}

// AddTo adds the flags to a command.
func (f *ringFlags) AddTo(c *cobra.Command) {
	f.Flags.AddTo(c)
	f.Namespace = frame.ReleaseNamespace
	namespace := c.Flags().Lookup("namespace")
	namespace.DefValue, namespace.Usage = frame.ReleaseNamespace, "namespace of Lanyard's release"
	c.Flags().StringVar(&f.name, "ring", keyring.IssuerRing, "name of the KeyRing: issuer or spiffe")
	frame.CompleteFlag(c, "ring", f.completeRings)
}

// completeRings completes the name of a KeyRing.
func (f *ringFlags) completeRings(c *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return f.Complete(c, begun, func(ctx context.Context, cluster *cluster.Client) (names []cobra.Completion, err error) {
		var rings identityv1.KeyRingList
		err = cluster.List(ctx, &rings, client.InNamespace(cluster.Namespace))
		for _, ring := range rings.Items {
			names = append(names, ring.Name)
		}
		return names, err
	})
}

// completeKeys completes the kid of a key. It offers the ring's keys k for which about(k) is true.
func (f *ringFlags) completeKeys(about func(keyring.Entry) bool) cobra.CompletionFunc {
	return frame.CompleteFirst(func(c *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return f.Complete(c, begun, func(ctx context.Context, cluster *cluster.Client) (offers []cobra.Completion, err error) {
			ring, err := f.read(ctx, cluster)
			if err != nil {
				return nil, err
			}
			for _, key := range keyring.Entries(&ring.Status) {
				if about(key) {
					offers = append(offers, cobra.CompletionWithDesc(key.ID, string(key.Role)+" "+string(key.State)))
				}
			}
			return offers, nil
		})
	})
}

// withRing returns a function for RunE of a [cobra.Command]. The function connects to the cluster,
// reads the ring, and calls run.
func (f *ringFlags) withRing(
	run func(ctx context.Context, cluster *cluster.Client, ring *identityv1.KeyRing, args []string) error,
) func(c *cobra.Command, args []string) error {
	return f.WithCluster(func(ctx context.Context, cluster *cluster.Client, args []string) error {
		ring, err := f.read(ctx, cluster)
		if err != nil {
			return err
		}
		return run(ctx, cluster, ring, args)
	})
}

// read reads the ring.
func (f *ringFlags) read(ctx context.Context, cluster *cluster.Client) (*identityv1.KeyRing, error) {
	ring := &identityv1.KeyRing{}
	err := cluster.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: f.name}, ring)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("there is no KeyRing %s in namespace %s: the token server makes it when it starts; "+
			"-n names another namespace", f.name, cluster.Namespace)
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("at %s: %w; KeyRings are in no role of the chart for people: "+
			"who can change them can revoke the issuer's keys", cluster.Config.Host, err)
	case err != nil:
		return nil, cluster.Failed(err)
	}
	return ring, nil
}

// ringChange is a request of a command to change a ring.
type ringChange struct {
	// asked is the message that the command prints after it has written the request.
	asked string
	// change writes the request into the ring's spec.
	change func(*identityv1.KeyRing) error
	// done reports whether the token server has fulfilled the request.
	done func(*identityv1.KeyRing) bool
	// result returns the message that the command prints after the request is fulfilled.
	result func(*identityv1.KeyRing) string
}

// ringCommand is a command that changes a ring.
type ringCommand struct {
	ringFlags

	timeout time.Duration
}

// AddTo adds the flags to a command.
func (r *ringCommand) AddTo(c *cobra.Command) {
	r.ringFlags.AddTo(c)
	c.Flags().DurationVar(&r.timeout, "timeout", cluster.DefaultWait, "longest time to wait for the token server; 0 does not wait")
	frame.CompleteNothing(c, "timeout")
}

// checkTimeout refuses a negative timeout.
func (r *ringCommand) checkTimeout(*cobra.Command, []string) error {
	if r.timeout < 0 {
		return errors.New("--timeout: write a duration of at least 0, such as 30s")
	}
	return nil
}

// kidArgument checks the arguments of a command about one key.
func kidArgument(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return errors.New("name one key by its kid, as \"lanyard keys list\" shows it")
	}
	return nil
}

// perform writes a request into the ring, and waits until the token server has fulfilled it.
func (r *ringCommand) perform(ctx context.Context, cluster *cluster.Client, wish ringChange) error {
	var ring *identityv1.KeyRing
	var err error
	// Use err, because RetryOnConflict may return nil after a timeout or an interrupt.
	_ = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if ring, err = r.read(ctx, cluster); err != nil {
			return err
		}
		if err = wish.change(ring); err != nil {
			return err
		}
		err = cluster.Update(ctx, ring, client.FieldOwner(frame.Name))
		return err
	})
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("at %s: %w; the caller needs update of keyrings.%s in namespace %s",
			cluster.Config.Host, err, identityv1.Group, cluster.Namespace)
	}
	if err != nil {
		return err
	}
	r.say(wish.asked)
	if r.timeout == 0 {
		return nil
	}
	return r.wait(ctx, cluster, ring.Generation, wish)
}

// wait waits until the token server has seen this generation of the ring and fulfilled the request.
// Meanwhile it prints what the ring waits for.
func (r *ringCommand) wait(ctx context.Context, from *cluster.Client, generation int64, wish ringChange) error {
	deadline, said, seen := time.Now().Add(r.timeout), "", false
	for {
		ring, err := r.read(ctx, from)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		seen = seen || ring.Status.ObservedGeneration >= generation
		if seen && wish.done(ring) {
			r.say(wish.result(ring))
			return nil
		}
		if why := hindrance(ring); seen && why != "" && why != said {
			said = why
			r.say(said)
		}
		switch {
		case time.Now().Before(deadline):
		case !seen:
			return fmt.Errorf("the token server did nothing for %s; "+
				"is it running, and does its log say which replica rotates the keys?", r.timeout)
		default:
			return fmt.Errorf("it is not done after %s; the token server goes on, and \"lanyard keys list\" shows how far it is", r.timeout)
		}
		if err := cluster.Pause(ctx); err != nil {
			return err
		}
	}
}

// say writes progress.
func (r *ringCommand) say(message string) {
	_, _ = fmt.Fprintf(r.Std.Err, "keyring/%s: %s\n", r.name, plain.Text(message)) // the command continues if progress cannot be written
}

// active returns a message that lists the keys that sign now.
func active(ring *identityv1.KeyRing) string {
	message := "no key signs"
	for i, key := range activeKeys(ring) {
		if i == 0 {
			message = "signing now:"
		}
		message += " " + key.ID + " (" + string(key.Role) + ")"
	}
	return message
}

func newKeysRotate(std frame.IO) *cobra.Command {
	r := ringCommand{ringFlags: ringFlags{Flags: cluster.Flags{Std: std}}}
	c := &cobra.Command{
		Use:   "rotate",
		Short: "Replace the keys that sign now by their published successors",
		Long: `Replace the keys that sign now by their published successors.

A successor takes over as soon as it has been in the public document for the publish delay. The replaced key stays in the
document until all that it has signed has expired, so no token is refused. If a key has leaked, revoke it instead.`,
		Example: `  lanyard keys rotate

  # Ask for it and do not wait
  lanyard keys rotate --timeout 0`,
	}
	r.AddTo(c)
	c.Args = cobra.MatchAll(cobra.NoArgs, r.checkTimeout)
	c.RunE = r.WithCluster(func(ctx context.Context, cluster *cluster.Client, _ []string) error {
		return r.perform(ctx, cluster, ringChange{
			asked: "a rotation is requested",
			change: func(ring *identityv1.KeyRing) error {
				keyring.Rotate(ring, time.Now())
				return nil
			},
			done: func(ring *identityv1.KeyRing) bool {
				keys := activeKeys(ring)
				return len(keys) > 0 && !slices.ContainsFunc(keys, func(k keyring.Entry) bool { return k.Rotation != ring.Spec.Rotate })
			},
			result: active,
		})
	})
	return c
}

func newKeysConfirm(std frame.IO) *cobra.Command {
	r := ringCommand{ringFlags: ringFlags{Flags: cluster.Flags{Std: std}}}
	var skipDelay bool
	c := &cobra.Command{
		Use:   "confirm KID",
		Short: "Say that a key is published where verifiers read",
		Long: `Say that a key is published where verifiers read.

This replaces the token server's own look at the public document, for documents in a bucket or behind an air gap. With
--skip-delay the key may sign at once: verifiers that cached the document before the key was in it then refuse tokens until
they read it again.`,
		Example: `  # The documents are in a bucket: export them, upload them, then confirm the new key
  lanyard discovery export ./public
  lanyard keys confirm NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs

  # A new issuer that no verifier has read yet
  lanyard keys confirm NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs --skip-delay`,
	}
	r.AddTo(c)
	c.Flags().BoolVar(&skipDelay, "skip-delay", false, "let the key sign without the publish delay")
	c.Args = cobra.MatchAll(kidArgument, r.checkTimeout)
	c.ValidArgsFunction = r.completeKeys(keyring.Entry.Waiting)
	c.RunE = r.WithCluster(func(ctx context.Context, cluster *cluster.Client, args []string) error {
		return r.perform(ctx, cluster, ringChange{
			asked:  "key " + args[0] + " is confirmed",
			change: func(ring *identityv1.KeyRing) error { return keyring.Confirm(ring, args[0], skipDelay) },
			done: func(ring *identityv1.KeyRing) bool {
				key, found := keyring.Find(&ring.Status, args[0])
				return !found || key.State != identityv1.KeyPending
			},
			result: func(ring *identityv1.KeyRing) string { return "key " + args[0] + " is " + stateOf(ring, args[0]) },
		})
	})
	return c
}

func newKeysRevoke(std frame.IO) *cobra.Command {
	r := ringCommand{ringFlags: ringFlags{Flags: cluster.Flags{Std: std}}}
	var yes bool
	c := &cobra.Command{
		Use:   "revoke KID",
		Short: "Revoke a key that has leaked; says what this breaks",
		Long: `Revoke a key that has leaked; says what this breaks.

The key leaves the public document and never signs again. A published successor signs at once. Without --yes the command
only shows what breaks, and exits with status 1. A revocation cannot be taken back.`,
		Example: `  # What would break?
  lanyard keys revoke NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs

  lanyard keys revoke NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs --yes`,
	}
	r.AddTo(c)
	c.Flags().BoolVar(&yes, "yes", false, "revoke the key")
	c.Args = cobra.MatchAll(kidArgument, r.checkTimeout)
	c.ValidArgsFunction = r.completeKeys(func(k keyring.Entry) bool { return k.State != identityv1.KeyRevoked })
	c.RunE = r.withRing(func(ctx context.Context, cluster *cluster.Client, ring *identityv1.KeyRing, args []string) error {
		consequences, err := keyring.ConsequencesOf(ring, args[0], time.Now())
		if err != nil {
			return err
		}
		for _, line := range consequences.Lines() {
			_, _ = fmt.Fprintln(std.Out, plain.Text(line))
		}
		if !yes {
			return fmt.Errorf("nothing is revoked yet; \"lanyard keys revoke %s --yes\" revokes the key", args[0])
		}
		return r.perform(ctx, cluster, ringChange{
			asked:  "the revocation of key " + args[0] + " is requested",
			change: func(ring *identityv1.KeyRing) error { return keyring.Revoke(ring, args[0]) },
			done: func(ring *identityv1.KeyRing) bool {
				key, found := keyring.Find(&ring.Status, args[0])
				return !found || key.State == identityv1.KeyRevoked
			},
			result: func(ring *identityv1.KeyRing) string { return "key " + args[0] + " is revoked; " + active(ring) },
		})
	})
	return c
}
