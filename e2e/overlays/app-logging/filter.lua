function cb(tag, ts, record)
  record["x"] = "%s:%d" .. tag   
  return 1, ts, record
end
