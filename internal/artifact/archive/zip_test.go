package archive_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
)

// manifests returns a tar.gz of files that compress like manifests. Equal seeds give equal
// archives.
func manifests(tb testing.TB, seed uint64, files, size int) []byte {
	tb.Helper()
	random := rand.New(rand.NewPCG(seed, 0))
	words := make([]string, 3000)
	for i := range words {
		word := make([]byte, 3+random.IntN(9))
		for j := range word {
			word[j] = byte('a' + random.IntN(26))
		}
		words[i] = string(word)
	}
	entries := make([]entry, files)
	for i := range entries {
		var body strings.Builder
		for body.Len() < size {
			fmt.Fprintf(&body, "  %s: %s-%d\n", words[random.IntN(len(words))], words[random.IntN(len(words))], random.IntN(1<<20))
		}
		entries[i] = reg(fmt.Sprintf("dir-%d/file-%d.yaml", i%50, i), body.String())
	}
	return zip(tb, pack(tb, entries...))
}

func digest(tb testing.TB, in []byte) string {
	tb.Helper()
	h := sha256.New()
	if _, err := archive.Normalize(tb.Context(), bytes.NewReader(in), h, archive.Options{}); err != nil {
		tb.Fatal(err)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// TestDigestIsKnown fails if the compressor gives a new digest. An artifact's digest is part of an
// object's status: consumers apply an artifact again when its digest changes. If a newer version of
// the compressor changes the digest, the changelog must say so.
func TestDigestIsKnown(t *testing.T) {
	const want = "9aced2b90cfe28072795feee0fd429fc2e63b9c3b6eef5f555a164f871dc02c2"
	if got := digest(t, manifests(t, 1, 20, 5000)); got != want {
		t.Errorf("equal content has another digest than in the last release: %s", got)
	}
}

// TestReusedWritersForget checks that a reused writer leaves no bytes of one archive in the next.
func TestReusedWritersForget(t *testing.T) {
	var archives [][]byte
	var want []string
	for seed := range uint64(6) {
		in := manifests(t, seed, int(1+seed*3), 3000)
		archives, want = append(archives, in), append(want, digest(t, in))
	}
	broken := archives[5][:len(archives[5])/2]
	var group sync.WaitGroup
	for worker := range 4 {
		group.Go(func() {
			for i := range 60 {
				k := (i*5 + worker) % len(archives)
				if got := digest(t, archives[k]); got != want[k] {
					t.Errorf("archive %d has another digest after others", k)
				}
				if _, err := archive.Normalize(t.Context(), bytes.NewReader(broken), io.Discard, archive.Options{}); err == nil {
					t.Error("half an archive was taken")
				}
			}
		})
	}
	group.Wait()
}

func BenchmarkNormalize(b *testing.B) {
	for name, in := range map[string][]byte{"5 files": manifests(b, 1, 5, 800), "2000 files": manifests(b, 1, 2000, 10_500)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				digest(b, in)
			}
		})
	}
}
