package oneshot
import ("testing")
func TestZZ(t *testing.T){
 for _, variant := range []string{"O2","fp","musl"} {
 p, _ := start(t, "locks/pthread", variant, "normal", "10")
 v, err := open(open1(t,p.PID), nil); if err!=nil {t.Fatal(err)}
 v.onItsOwn(func() error { return v.look(nil) })
 for _, e := range v.eyes { t.Log(variant, e.info.TID, e.asleep, e.State, e.reason, len(e.frames), e.wait!=nil, e.thread!=nil) }
 v.close()
 }
}
