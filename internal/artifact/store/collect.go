package store

import (
	"context"
	"slices"
	"time"
)

// retention says which artifacts stay although no status names them any more: a client that read an
// earlier status may still fetch them.
type retention struct {
	// ttl is how long an artifact stays after a newer artifact has replaced it. For the last
	// artifact of a deleted object, ttl begins when that artifact was stored.
	ttl time.Duration
	// records is the maximum number of artifacts of an object, including the current one.
	records int
}

// fluxRetention returns Flux's values.
func fluxRetention() retention { return retention{ttl: 60 * time.Second, records: 2} }

// Collected is what Collect removed.
type Collected struct {
	// Artifacts is the number of removed artifacts.
	Artifacts int
	// Bytes is the size of the removed artifacts.
	Bytes int64
	// Pending are the objects with artifacts that a later call may remove.
	Pending []Object
}

// Collect removes artifacts that are not needed any more. The function live reports whether an
// object still exists with its UID. It also returns the digests that are in the object's status, or
// will be there soon. Artifacts with these digests stay.
//
// All other artifacts are removed after a minute. For the newest artifact of an object, the minute
// begins when it is stored. For an older one, it begins when the next artifact is stored. But if an
// object has more than two artifacts, the oldest of these others are removed at once, until two
// artifacts remain.
//
// Call Collect only when live knows all objects: the artifacts of unknown objects are removed.
func (s *Store) Collect(ctx context.Context, live func(Object) (digests []string, exists bool)) (Collected, error) {
	var done Collected
	err := s.each(func(o Object, _ []Stored) error { return s.collect(ctx, o, live, &done) })
	return done, err
}

// CollectObjects is Collect for these objects only.
func (s *Store) CollectObjects(
	ctx context.Context, objects []Object, live func(Object) (digests []string, exists bool),
) (done Collected, err error) {
	for _, o := range objects {
		if o, err = o.check(); err != nil {
			return done, err
		}
		if err := s.collect(ctx, o, live, &done); err != nil {
			return done, err
		}
	}
	return done, nil
}

// collect is Collect for one object. It adds the result to done.
func (s *Store) collect(ctx context.Context, o Object, live func(Object) ([]string, bool), done *Collected) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	current, exists := live(o)
	s.tree.Lock()
	defer s.tree.Unlock()
	files, err := s.files(o)
	if err != nil {
		return err
	}
	drop := garbage(files, current, exists, s.keep, time.Now())
	// A later call may remove an artifact of the object in two cases:
	//   - Several artifacts stay. The older ones usually leave the object's status soon.
	//   - An artifact stays that is not in the object's status.
	if kept := len(files) - len(drop); kept > 1 || slices.ContainsFunc(files, func(f Stored) bool {
		return !slices.Contains(drop, f) && (!exists || !slices.Contains(current, f.Digest))
	}) {
		done.Pending = append(done.Pending, o)
	}
	done.Artifacts += len(drop)
	freed, err := s.remove(o, drop)
	done.Bytes += freed
	return err
}

// garbage returns those artifacts of one object that Collect must remove. An artifact's age counts
// from the time when the next artifact was stored. Until that time the artifact was current, so
// clients may still fetch it.
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
