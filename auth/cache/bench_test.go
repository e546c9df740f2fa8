package cache_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/cache"
)

func BenchmarkHit(b *testing.B) {
	for _, n := range []int{1, 1_000, 100_000} {
		c := cache.New(cache.Options{MaxSize: n})
		plain := make(map[auth.Key]auth.Token, n)
		o := &office{life: time.Hour}
		keys := make([]auth.Key, n)
		for i := range keys {
			keys[i] = keyOf(b, fmt.Sprintf("tenant-%d", i/10), fmt.Sprintf("sa-%d", i))
			fetched, err := c.Fetch(b.Context(), keys[i], auth.FetchOptions{}, o.fetch(keys[i]))
			if err != nil {
				b.Fatal(err)
			}
			plain[keys[i]] = fetched.Token
		}
		b.Run(fmt.Sprintf("cache/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if _, ok := c.Get(keys[i%n], 0, auth.InvolvedObject{}); !ok {
					b.Fatal("miss")
				}
				i += 7919
			}
		})
		b.Run(fmt.Sprintf("map/%d", n), func(b *testing.B) {
			i := 0
			for b.Loop() {
				if _, ok := plain[keys[i%n]]; !ok {
					b.Fatal("miss")
				}
				i += 7919
			}
		})
		b.Run(fmt.Sprintf("parallel/%d", n), func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				i := 0
				for pb.Next() {
					if _, ok := c.Get(keys[i%n], 0, auth.InvolvedObject{}); !ok {
						b.Fatal("miss")
					}
					i += 7919
				}
			})
		})
	}
}
