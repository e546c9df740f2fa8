package store

import (
	"context"
	"slices"
	"time"
)

// retention says how long artifacts outlive their use, for those who read a status just before it
// changed.
type retention struct {
	// ttl is how long an artifact stays after a newer one has taken its place, or after its object
	// is gone.
	ttl time.Duration
	// records is how many artifacts an object keeps at most, the current one included.
	records int
}

// fluxRetention returns Flux's values.
func fluxRetention() retention { return retention{ttl: 60 * time.Second, records: 2} }

// Collected is what Collect removed.
type Collected struct {
	// Artifacts is their number.
	Artifacts int
	// Bytes is their size.
	Bytes int64
	// Pending are objects with artifacts that a later call may remove.
	Pending []Object
}

func (c *Collected) add(more Collected) {
	c.Artifacts += more.Artifacts
	c.Bytes += more.Bytes
	c.Pending = append(c.Pending, more.Pending...)
}

// Collect removes what is no longer wanted. live says for an object, UID included, whether it
// exists and which digests its status names or is about to name; an answer that is not certain (a
// cache that is not filled yet) must be true. These artifacts always stay. Others, and those of an
// object that does not exist, stay for a minute; an object keeps two at most.
func (s *Store) Collect(ctx context.Context, live func(Object) (digests []string, exists bool)) (Collected, error) {
	var done Collected
	err := s.each(func(o Object, _ []Stored) error {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		current, exists := live(o)
		got, err := s.collect(o, current, exists)
		done.add(got)
		return err
	})
	return done, err
}

// CollectObjects is Collect for these objects alone.
func (s *Store) CollectObjects(
	ctx context.Context, objects []Object, live func(Object) (digests []string, exists bool),
) (done Collected, err error) {
	for _, o := range objects {
		if cause := context.Cause(ctx); cause != nil {
			return done, cause
		}
		if o, err = o.check(); err != nil {
			return done, err
		}
		current, exists := live(o)
		got, err := s.collect(o, current, exists)
		if done.add(got); err != nil {
			return done, err
		}
	}
	return done, nil
}

func (s *Store) collect(o Object, current []string, exists bool) (done Collected, err error) {
	s.tree.Lock()
	defer s.tree.Unlock()
	files, err := s.files(o)
	if err != nil {
		return Collected{}, err
	}
	drop := garbage(files, current, exists, s.keep, time.Now())
	// Of two artifacts, the older one usually goes once the status names the newer one alone.
	if kept := len(files) - len(drop); kept > 1 || slices.ContainsFunc(files, func(f Stored) bool {
		return !slices.Contains(drop, f) && (!exists || !slices.Contains(current, f.Digest))
	}) {
		done.Pending = []Object{o}
	}
	done.Artifacts = len(drop)
	done.Bytes, err = s.remove(o, drop)
	return done, err
}

// garbage decides which of one object's artifacts go. An artifact's age counts from when the next
// newer one was stored: a version that stood for a year is still in use a second after it was
// replaced.
func garbage(files []Stored, current []string, exists bool, keep retention, now time.Time) []Stored {
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b Stored) int { return b.Time.Compare(a.Time) })
	stays := func(f Stored) bool { return exists && slices.Contains(current, f.Digest) }
	room := keep.records
	for _, f := range files {
		if stays(f) {
			room--
		}
	}
	var drop []Stored
	others := 0
	for i, f := range files {
		if stays(f) {
			continue
		}
		replaced := f.Time
		if i > 0 {
			replaced = files[i-1].Time
		}
		others++
		if now.Sub(replaced) > keep.ttl || others > room {
			drop = append(drop, f)
		}
	}
	return drop
}
